"""Workspaces and who is in them: names, roles, invitations, and that an owner always stays."""

import threading

import pytest
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.errors import ForbiddenError, InvalidRequestError, MissingError, ServiceError, TakenError
from osmosis_platform.identity.accounts import change_workspace, create_workspace, delete_workspace
from osmosis_platform.identity.members import (
    accept_invitation,
    change_role,
    invite,
    leave_workspace,
    remove_member,
    revoke_invitation,
)
from osmosis_platform.identity.names import check_email, check_workspace_name
from osmosis_platform.secrets.keeping import resolve, set_secret


def roles(house):
    members = house.read(lambda work: MembershipRepository(work).all(house.workspace.id))
    return {member.email.partition("@")[0]: str(member.role) for member in members}


def act(house, call, who, *args, **facts):
    return house.write(lambda work: call(work, house.actor(who), *args, **facts))


@pytest.mark.parametrize("name", ["", "-lab", "lab-", "a b", "läb", "a/b", "a.b", "a_b", "x" * 40, "..", "lab\n x"])
def test_a_name_that_fits_no_url_is_refused(name):
    with pytest.raises(InvalidRequestError) as caught:
        check_workspace_name(name)
    assert caught.value.error_code == "NAME_INVALID"


@pytest.mark.parametrize("name", ["api", "Git", "setup", "device", "healthz", "invitations"])
def test_a_name_of_the_platforms_own_pages_is_refused(name):
    with pytest.raises(InvalidRequestError) as caught:
        check_workspace_name(name)
    assert caught.value.error_code == "NAME_RESERVED"


@pytest.mark.parametrize(
    "email", ["", "a", "@b", "a@", "a b@c.d", "a@b@c", "a@-b.c", "a@b..c", "a\n@b.c", "<a@b.c>", "a@b" * 99]
)
def test_what_is_no_address_is_refused(email):
    with pytest.raises(InvalidRequestError):
        check_email(email)


def test_a_name_is_one_workspaces_whatever_its_case_also_a_former_one(house):
    act(house, change_workspace, "ada", house.workspace.id, name="studio")
    for taken in ("Studio", "LAB"):
        with pytest.raises(TakenError):
            house.write(lambda work, name=taken: create_workspace(house.services, work, house.actor("ada"), name))
    assert act(house, change_workspace, "ada", house.workspace.id, name="Lab").name == "Lab"


def test_a_renamed_workspace_answers_to_its_former_name(house, client):
    act(house, change_workspace, "ada", house.workspace.id, name="studio")
    found = house.read(lambda work: WorkspaceRepository(work).by_name("LAB"))
    assert (found.id, found.name) == (house.workspace.id, "studio")


def test_only_owners_delete_and_only_by_the_right_name(everybody):
    house = everybody
    with pytest.raises(ForbiddenError):
        act(house, delete_workspace, "admin", house.workspace.id, confirmed_name="lab")
    with pytest.raises(InvalidRequestError):
        act(house, delete_workspace, "ada", house.workspace.id, confirmed_name="Lab")
    only_here = house.token("member", workspace_id=house.workspace.id)
    act(house, delete_workspace, "ada", house.workspace.id, confirmed_name="lab")
    assert house.read(lambda work: WorkspaceRepository(work).seen_by(house.users["member"].id)) == []
    assert house.read(lambda work: TokenRepository(work).find(only_here.id))[0].revoked_at
    again = house.write(lambda work: create_workspace(house.services, work, house.actor("admin"), "lab"))
    assert again.id != house.workspace.id


def test_the_last_owner_stays(everybody):
    house = everybody
    for call in (
        lambda work: leave_workspace(work, house.actor("ada"), house.workspace.id),
        lambda work: remove_member(work, house.actor("ada"), house.workspace.id, house.users["ada"].id),
        lambda work: change_role(work, house.actor("ada"), house.workspace.id, house.users["ada"].id, Role.MEMBER),
    ):
        with pytest.raises(TakenError) as caught:
            house.write(call)
        assert caught.value.error_code == "LAST_OWNER"
    act(house, change_role, "ada", house.workspace.id, house.users["admin"].id, Role.OWNER)
    act(house, leave_workspace, "ada", house.workspace.id)
    assert roles(house) == {"admin": "owner", "member": "member", "viewer": "viewer"}


def test_two_owners_who_leave_at_once_leave_one(house):
    house.person("bob", Role.OWNER)
    start, ends = threading.Barrier(2), []

    def leave(who):
        actor = house.actor(who)
        start.wait()
        try:
            house.write(lambda work: leave_workspace(work, actor, house.workspace.id))
            ends.append("left")
        except ServiceError as error:
            ends.append(error.error_code)

    threads = [threading.Thread(target=leave, args=(who,)) for who in ("ada", "bob")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(ends) == ["LAST_OWNER", "left"]
    assert list(roles(house).values()) == ["owner"]


def test_admins_manage_everybody_but_owners(everybody):
    house, workspace = everybody, everybody.workspace.id
    act(house, change_role, "admin", workspace, house.users["viewer"].id, Role.MEMBER)
    act(house, remove_member, "admin", workspace, house.users["member"].id)
    for call in (
        lambda: act(house, change_role, "admin", workspace, house.users["viewer"].id, Role.OWNER),
        lambda: act(house, change_role, "admin", workspace, house.users["ada"].id, Role.VIEWER),
        lambda: act(house, remove_member, "admin", workspace, house.users["ada"].id),
        lambda: act(house, invite, "admin", workspace, role=Role.OWNER),
        lambda: act(house, invite, "viewer", workspace, role=Role.VIEWER),
    ):
        with pytest.raises(ForbiddenError):
            call()
    assert roles(house) == {"ada": "owner", "admin": "admin", "viewer": "member"}


def test_a_stranger_changes_nothing_and_is_told_nothing(everybody):
    with pytest.raises(MissingError) as caught:
        act(everybody, remove_member, "stranger", everybody.workspace.id, everybody.users["viewer"].id)
    assert "lab" not in str(caught.value)


def test_an_invitation_lets_one_person_in_once(everybody):
    house = everybody
    link = act(house, invite, "ada", house.workspace.id, role=Role.MEMBER)
    assert link.secret not in repr(link)
    act(house, accept_invitation, "viewer", link.secret)  # a member already: keeps the role, uses nothing up
    assert roles(house)["viewer"] == "viewer"
    act(house, accept_invitation, "stranger", link.secret)
    assert roles(house)["stranger"] == "member"
    house.person("late")
    with pytest.raises(MissingError) as caught:
        act(house, accept_invitation, "late", link.secret)
    assert caught.value.error_code == "INVITATION_OVER"


@pytest.mark.parametrize("end", ["revoked", "expired", "unknown", "deleted workspace"])
def test_an_invitation_that_does_not_count_lets_nobody_in(everybody, end):
    house = everybody
    link = act(house, invite, "admin", house.workspace.id, role=Role.MEMBER)
    secret = link.secret if end != "unknown" else link.secret[:-1]
    if end == "revoked":
        act(house, revoke_invitation, "admin", house.workspace.id, link.id)
    elif end == "expired":
        house.clock.turn(days=7)
    elif end == "deleted workspace":
        act(house, delete_workspace, "ada", house.workspace.id, confirmed_name="lab")
    with pytest.raises(MissingError) as caught:
        act(house, accept_invitation, "stranger", secret)
    over = end in {"revoked", "expired"}
    assert caught.value.error_code == ("INVITATION_OVER" if over else "INVITATION_INVALID")


def test_an_invitation_for_an_address_is_for_that_person(everybody):
    house = everybody
    link = act(house, invite, "ada", house.workspace.id, role=Role.ADMIN, email="Guest@Example.com")
    with pytest.raises(ForbiddenError) as caught:
        act(house, accept_invitation, "stranger", link.secret)
    assert caught.value.error_code == "INVITATION_FOR_ANOTHER" and "guest" not in str(caught.value).lower()
    house.person("guest")
    act(house, accept_invitation, "guest", link.secret)
    assert roles(house)["guest"] == "admin"


def test_what_members_do_is_in_the_log(everybody):
    house = everybody
    act(house, change_role, "ada", house.workspace.id, house.users["viewer"].id, Role.MEMBER)
    act(house, leave_workspace, "viewer", house.workspace.id)
    with house.services.database.read() as work:
        actions = [entry.action for entry in AuditRepository(work).walk(house.workspace.id)]
        assert AuditRepository(work).verify(house.workspace.id) is None
    assert actions[0] == "workspace.create" and actions[-2:] == ["member.change_role", "member.leave"]


def test_a_member_who_goes_leaves_no_secret_of_their_own(house):
    house.person("bob", Role.ADMIN)
    vault, workspace_id = house.services.vault, house.workspace.id
    vault.check(house.services.database)
    for who, scope in (("bob", "user"), ("bob", "workspace"), ("ada", "user")):
        facts = {"scope": scope, "name": f"{who}_{scope}".upper(), "value": "a value"}
        house.write(lambda work, who=who, facts=facts: set_secret(vault, work, workspace_id, house.actor(who), **facts))
    act(house, leave_workspace, "bob", workspace_id)
    names = ["BOB_USER", "BOB_WORKSPACE", "ADA_USER"]

    def resolved(who):
        return house.read(lambda work: resolve(vault, work, workspace_id, house.actor(who).user_id, names))

    assert dict(resolved("ada").scopes) == {"ADA_USER": "user", "BOB_WORKSPACE": "workspace"}
    assert "BOB_USER" in resolved("bob").missing
