"""The table of roles, actions and scopes says something of everything, and nothing else decides."""

import pytest
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import EVERYBODY, MEMBERS, RULES, SCOPES, Action, Role, authorize, is_allowed
from osmosis_platform.errors import ForbiddenError


def actor(**facts):
    return Actor("us_1", "a@example.com", **facts)


def test_every_action_has_a_rule_and_every_scope_is_offered():
    assert set(RULES) == set(Action)
    assert {rule.scope for rule in RULES.values() if rule.scope} <= SCOPES


def test_roles_are_a_ladder():
    """Who is more never may less: owners all that admins may, and so on down."""
    ladder = list(Role)
    for action, rule in RULES.items():
        if rule.roles is not None:
            may = [role in rule.roles for role in ladder]
            assert may == sorted(may, reverse=True), action


def test_viewers_change_nothing_but_their_own_going():
    may = {
        action for action, rule in RULES.items() if rule.roles and Role.VIEWER in rule.roles and not rule.administrator
    }
    assert {action for action in may if not action.endswith(".read")} == {Action.WORKSPACE_LEAVE}


def test_writing_includes_reading_and_nothing_of_another_family():
    writer = actor(scopes=frozenset({"datasets:write"}))
    assert is_allowed(Role.OWNER, Action.DATASETS_READ, actor=writer)
    assert is_allowed(Role.OWNER, Action.DATASETS_WRITE, actor=writer)
    assert not is_allowed(Role.OWNER, Action.SECRETS_READ, actor=writer)
    reader = actor(scopes=frozenset({"datasets:read"}))
    with pytest.raises(ForbiddenError) as caught:
        authorize(Role.OWNER, Action.DATASETS_WRITE, actor=reader)
    assert caught.value.error_code == "TOKEN_SCOPE_MISSING"
    assert caught.value.details["required_scope"] == "datasets:write"


def test_members_delete_what_is_theirs():
    for role in EVERYBODY:
        mine = is_allowed(role, Action.DATASETS_DELETE, actor=actor(), owner_id="us_1")
        assert mine == (role in MEMBERS)
        others = is_allowed(role, Action.DATASETS_DELETE, actor=actor(), owner_id="us_2")
        assert others == (role in {Role.OWNER, Role.ADMIN})
    assert not is_allowed(None, Action.DATASETS_DELETE, actor=actor(), owner_id="us_1")


def test_only_administrators_administer():
    assert not is_allowed(None, Action.PLATFORM_ADMINISTER, actor=actor())
    assert is_allowed(None, Action.PLATFORM_ADMINISTER, actor=actor(is_administrator=True))
    with pytest.raises(ForbiddenError, match="administrator"):
        authorize(Role.OWNER, Action.QUOTAS_MANAGE, actor=actor())


@pytest.mark.parametrize("action", [action for action in Action if RULES[action].beyond])
def test_a_token_for_one_workspace_does_not_reach_beyond_it(action):
    restricted = actor(only_workspace_id="ws_1", is_administrator=True)
    with pytest.raises(ForbiddenError) as caught:
        authorize(None, action, actor=restricted)
    assert caught.value.error_code == "TOKEN_REACH"


def test_a_refusal_names_role_action_and_who_could():
    with pytest.raises(ForbiddenError, match=r"viewer; runs\.submit needs owner or admin or member"):
        authorize(Role.VIEWER, Action.RUNS_SUBMIT, actor=actor())
