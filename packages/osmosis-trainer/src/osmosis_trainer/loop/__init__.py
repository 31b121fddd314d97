"""The training loop: data order, rollouts, advantages, steps, validation, checkpoints."""
