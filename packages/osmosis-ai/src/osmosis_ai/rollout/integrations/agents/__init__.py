"""Agent frameworks: `strands` and `openai_agents`, each with an extra of that name."""

__all__: list[str] = []
