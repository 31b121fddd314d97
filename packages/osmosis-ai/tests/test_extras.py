"""The missing-extra rule: an uninstalled optional package is answered with the command that installs it."""

import sys

import pytest
from osmosis_ai.extras import EXTRA_MODULES, FEATURES, lazy_exports, optional_imports


@pytest.mark.parametrize("extra", EXTRA_MODULES)
def test_the_message_names_the_feature_and_the_command(extra):
    for module in EXTRA_MODULES[extra]:
        with pytest.raises(ModuleNotFoundError) as caught, optional_imports(extra):
            raise ModuleNotFoundError(f"No module named '{module}.x'", name=f"{module}.x", path="somewhere")
        assert str(caught.value).startswith(FEATURES[extra])
        assert f'pip install "osmosis-ai[{extra}]"' in str(caught.value)
        assert (caught.value.name, caught.value.path) == (f"{module}.x", "somewhere")


def test_other_missing_modules_are_somebody_elses():
    with pytest.raises(ModuleNotFoundError) as caught, optional_imports("server"):
        import a_module_nobody_has  # noqa: F401 # ty: ignore[import-not-found]
    assert str(caught.value) == "No module named 'a_module_nobody_has'"
    with pytest.raises(ImportError, match="broken"), optional_imports("server"):
        raise ImportError("broken")
    with pytest.raises(ModuleNotFoundError, match="anonymous"), optional_imports("server"):
        raise ModuleNotFoundError("anonymous")


def test_the_feature_can_be_named_otherwise():
    with (
        pytest.raises(ModuleNotFoundError, match=r"^Rollout bundle packaging needs"),
        optional_imports("harbor", "Rollout bundle packaging"),
    ):
        raise ModuleNotFoundError(name="toml")


def test_the_server_without_its_extra(monkeypatch):
    import osmosis_ai.rollout.server as face

    monkeypatch.delitem(sys.modules, "osmosis_ai.rollout.server.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)  # what an uninstalled module looks like
    with pytest.raises(ModuleNotFoundError, match=r'The rollout server .* pip install "osmosis-ai\[server\]"'):
        face.create_rollout_server  # noqa: B018


def test_lazy_names():
    getattribute, names = lazy_exports("face", {"dumps": "json"})
    assert getattribute("dumps")(1) == "1" and names() == ["dumps"]
    with pytest.raises(AttributeError, match="module 'face' has no attribute 'loads'"):
        getattribute("loads")
