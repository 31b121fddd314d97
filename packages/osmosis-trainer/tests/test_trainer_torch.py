"""The torch engine beyond the contract: other architectures, and what happens without its extra."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.protocol import AdamConfig
from osmosis_trainer.engine.sampler import SampleRequest
from osmosis_trainer.engines import open_engine
from osmosis_trainer.losses import LossConfig

os.environ["HF_HUB_OFFLINE"] = "1"
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


async def answer(engine, version, prompt, key):
    request = SampleRequest(f"s{key}", version, prompt, min(12, 64 - len(prompt)), frozenset({2}), noise_key=key)
    pieces = [piece async for piece in engine.sample(request)]
    ids = [i for piece in pieces for i in piece.ids]
    logprobs = [p for piece in pieces for p in piece.logprobs]
    pad = [0.0] * len(prompt)
    return Datum([*prompt, *ids], [False] * len(prompt) + [True] * len(ids), [1.0] * len(prompt + ids), pad + logprobs)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("family", "options"),
    [
        pytest.param("Llama", SIZES, id="llama"),
        pytest.param(
            "Gemma2", SIZES | {"sliding_window": 8, "query_pre_attn_scalar": 8}, id="gemma2 (soft caps, windows)"
        ),
        pytest.param("GPT2", {"vocab_size": 60, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}, id="gpt2"),
    ],
)
async def test_any_causal_lm_samples_and_trains_on_policy(tmp_path, family, options):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from peft import PeftModel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**options)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # larger than usual, so that a wrong mask or position shows
        torch.nn.init.normal_(parameter, std=0.3 if parameter.ndim > 1 else 0.1)
    model.save_pretrained(tmp_path / "model")
    engine = open_engine("torch", tmp_path / "model", base="tiny", device="cpu")
    await engine.create_adapter("a", rank=4)
    version = await engine.publish("a")
    for step in range(2):
        # ragged: left padding must not be seen; one at the edge of the context, that ends before the others
        prompts = [[3 + k] * length for k, length in enumerate((2, 7, 13, 61))]
        datums = await asyncio.gather(*(answer(engine, version, p, 10 * step + k) for k, p in enumerate(prompts)))
        result = await engine.forward_backward("a", datums, LossConfig())
        assert result.metrics["logprob_gap_max"] < 1e-4
        assert (await engine.optim_step("a", AdamConfig(lr=3e-2))).grad_norm > 0
        version = await engine.publish("a")
    await engine.export_peft(version, tmp_path / "adapter")
    await engine.export_merged(version, tmp_path / "merged")
    (row, *_) = (await engine.forward("a", datums, LossConfig())).logprobs
    await engine.aclose()
    ids = torch.tensor([datums[0].tokens])
    adapted = PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model"), tmp_path / "adapter"
    )
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    with torch.no_grad():
        for loaded in (adapted.eval(), merged.eval()):
            table = loaded(ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
            assert row[2:] == pytest.approx(table[1:].tolist(), abs=1e-4)


@pytest.mark.parity
def test_a_folder_that_is_no_model_is_refused(tmp_path):
    pytest.importorskip("torch")
    with pytest.raises(ValidationError, match=r"no config\.json"):
        open_engine("torch", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(ValidationError, match="cannot be loaded"):
        open_engine("torch", tmp_path)


def test_the_missing_extra_is_named(monkeypatch, tiny_folder):
    monkeypatch.delitem(sys.modules, "osmosis_trainer.engine.torch_engine", raising=False)
    monkeypatch.delitem(sys.modules, "osmosis_trainer.engine.torch_model", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "osmosis-trainer\[torch\]"'):
        open_engine("torch", tiny_folder)


def test_an_unknown_engine_is_refused(tiny_folder):
    with pytest.raises(ValidationError, match="numpy, torch"):
        open_engine("jax", tiny_folder)


def test_the_numpy_engine_loads_no_torch(tiny_folder):
    code = (
        "import sys; from pathlib import Path; from osmosis_trainer.engines import open_engine\n"
        f"open_engine('numpy', Path({str(tiny_folder)!r}))\n"
        "print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
