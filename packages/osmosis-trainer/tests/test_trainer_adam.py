"""AdamW with clipping: by torch's, and what happens to a gradient that is not finite."""

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_trainer.engine.adam import AdamState, adam_step
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.protocol import AdamConfig


def run(config, steps=6, size=500, scale=1.0):
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=size).astype(np.float32)
    state = AdamState.zero(size)
    for _ in range(steps):
        adam_step(parameters, (rng.normal(size=size) * scale).astype(np.float32), state, config)
    return parameters, state


@pytest.mark.parity
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(AdamConfig(lr=1e-2, clip=0), id="plain"),
        pytest.param(AdamConfig(lr=1e-2, clip=1.0), id="clipped"),
        pytest.param(AdamConfig(lr=3e-3, beta1=0.8, beta2=0.99, eps=1e-5, weight_decay=0.1, clip=100), id="decayed"),
    ],
)
def test_steps_are_those_of_torch(config):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    parameter = torch.nn.Parameter(torch.tensor(rng.normal(size=500).astype(np.float32)))
    optimiser = torch.optim.AdamW(
        [parameter], config.lr, (config.beta1, config.beta2), config.eps, weight_decay=config.weight_decay
    )
    for _ in range(6):
        parameter.grad = torch.tensor(rng.normal(size=500).astype(np.float32))
        if config.clip:
            torch.nn.utils.clip_grad_norm_([parameter], config.clip)
        optimiser.step()
    parameters, _ = run(config)
    assert np.abs(parameters - parameter.detach().numpy()).max() < 1e-6


def test_equal_inputs_give_equal_bits():
    (a, x), (b, y) = run(AdamConfig(lr=1e-2)), run(AdamConfig(lr=1e-2))
    assert a.tobytes() == b.tobytes()
    assert x.second.tobytes() == y.second.tobytes()


def test_a_long_gradient_is_clipped_and_its_norm_reported():
    parameters, state = np.zeros(4, np.float32), AdamState.zero(4)
    norm = adam_step(parameters, np.array([3, 0, 4, 0], np.float32), state, AdamConfig(lr=0.1, clip=1.0))
    assert norm == pytest.approx(5.0)
    assert state.first == pytest.approx(np.array([0.06, 0, 0.08, 0]), abs=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    parameters, state = np.ones(3, np.float32), AdamState.zero(3)
    norm = adam_step(parameters, np.array([1, bad, 1], np.float32), state, AdamConfig(lr=0.1))
    assert not np.isfinite(norm)
    assert parameters.tolist() == [1, 1, 1]
    assert state.step == 0
    assert not state.first.any()


@pytest.mark.parametrize(
    "rates",
    [{"lr": -1}, {"lr": float("nan")}, {"lr": 1e-3, "beta1": 1.0}, {"lr": 1e-3, "eps": 0}, {"lr": 1, "clip": -1}],
)
def test_wrong_rates_are_refused(rates):
    with pytest.raises(ValidationError, match="optimiser step"):
        AdamConfig(**rates)
