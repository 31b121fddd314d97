"""TRL's GRPOTrainer on the same model, rows, tool, reward and settings; run by peers.py in a venv that has TRL.

    python trl_peer.py MODEL_FOLDER DATASET STEPS

Prints one JSON line a step: step, reward, cpu_s since the trainer was called (imports and loading not counted), wall_s.
Turns go through `rollout_func`: two batched `generate` calls, sampled tokens kept as drawn, the tool's answer masked.
"""

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
import torch

torch.set_num_threads(1)
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

MODEL, DATASET, STEPS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
SYSTEM = "Use the multiply tool. Then answer with #### <number>."
NUMBER = {"type": "integer"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two numbers.",
            "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
        },
    }
]
CALL = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>", re.DOTALL)
NEW_TOKENS = 64

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.padding_side = "left"
END, PAD = tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.pad_token_id or 0


def generate(model, prompts):
    """Sampled ids and their log-probabilities for each prompt."""
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(
        ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=NEW_TOKENS,
        eos_token_id=END, pad_token_id=PAD, return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    drawn = out.sequences[:, width:]
    logprobs = torch.stack(out.logits, 1).float().log_softmax(-1).gather(-1, drawn[..., None])[..., 0]
    answers = []
    for row, scores in zip(drawn.tolist(), logprobs.tolist(), strict=True):
        length = row.index(END) + 1 if END in row else len(row)
        answers.append((row[:length], scores[:length]))
    return answers


def rollouts(prompts, trainer):
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.eval()
    with torch.no_grad():
        first = [
            tokenizer.apply_chat_template(p, tools=TOOLS, add_generation_prompt=True, return_dict=False)
            for p in prompts
        ]
        completions, logprobs, masks = [], [], []
        turns = generate(model, first)
        again = []
        for index, (ids, scores) in enumerate(turns):
            completions.append(list(ids))
            logprobs.append(list(scores))
            masks.append([1] * len(ids))
            if found := CALL.search(tokenizer.decode(ids)):
                again.append((index, found.group(1)))
        for index, call in again:
            try:
                arguments = json.loads(call)["arguments"]
                result = str(int(arguments["a"]) * int(arguments["b"]))
            except (ValueError, TypeError, KeyError) as error:
                result = f"error: {error}"
            more = tokenizer.encode(f"\n<|im_start|>tool\n{result}<|im_end|>\n<|im_start|>assistant\n")
            completions[index] += more
            logprobs[index] += [0.0] * len(more)
            masks[index] += [0] * len(more)
        if again:
            second = generate(model, [first[index] + completions[index] for index, _ in again])
            for (index, _), (ids, scores) in zip(again, second, strict=True):
                completions[index] += ids
                logprobs[index] += scores
                masks[index] += [1] * len(ids)
    model.train()
    return {"prompt_ids": first, "completion_ids": completions, "logprobs": logprobs, "env_mask": masks}


def reward(completions, ground_truth, **_):
    answers = (re.findall(r"####\s*(-?\d+)", completion[0]["content"]) for completion in completions)
    return [1.0 if found and found[-1] == truth else 0.0 for found, truth in zip(answers, ground_truth, strict=True)]


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "reward" in logs:
            figures = {"step": state.global_step, "reward": logs["reward"]}
            print(
                json.dumps(figures | {"cpu_s": time.process_time() - CPU, "wall_s": time.monotonic() - WALL}),
                flush=True,
            )


rows = [json.loads(line) for line in DATASET.read_text().splitlines()]
data = Dataset.from_list(
    [
        {
            "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["user_prompt"]}],
            "ground_truth": row["ground_truth"],
        }
        for row in rows
    ]
)
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
    processing_class=tokenizer,
    reward_funcs=reward,
    train_dataset=data,
    rollout_func=rollouts,
    callbacks=[Report()],
    peft_config=LoraConfig(
        r=16,
        lora_alpha=32,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
    args=GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=64,
        num_generations=8,
        max_completion_length=160,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        weight_decay=0.0,
        max_steps=STEPS,
        temperature=1.0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    ),
)
CPU, WALL = time.process_time(), time.monotonic()
trainer.train()
