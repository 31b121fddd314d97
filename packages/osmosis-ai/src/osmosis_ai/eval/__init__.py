"""Public faces of local evaluation and rubric scoring; the rooms are `osmosis_ai.evaluation` and `.gateway`."""
