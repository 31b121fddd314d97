"""What ships: nano's folder is complete, small, honest about what it is, and rebuilt from the recipe's words."""

import json

from osmosis_trainer.engine.weights import parameter_shapes, read_parameters, read_shape


def test_the_model_folder_is_what_hugging_face_expects_and_at_most_four_megabytes(nano_folder):
    files = {path.name: path.stat().st_size for path in nano_folder.iterdir() if path.is_file()}
    assert set(files) == {
        "README.md",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(files.values()) < 4_000_000


def test_the_model_has_a_third_to_one_million_parameters_and_heads_of_32(nano_folder):
    shape = read_shape(nano_folder)
    count = sum(value.size for value in read_parameters(nano_folder, shape).values())
    assert 300_000 <= count <= 1_000_000
    assert shape.head_dim == 32
    assert len(parameter_shapes(shape)) == 2 + 11 * shape.num_hidden_layers


def test_the_page_says_that_it_is_a_demonstration_model(nano_folder):
    page = (nano_folder / "README.md").read_text()
    assert "demonstration model" in page
    assert f"{sum(v.size for v in read_parameters(nano_folder, read_shape(nano_folder)).values()):,}" in page


def test_sizes_agree_between_config_and_tokenizer(nano_folder):
    shape = read_shape(nano_folder)
    tokenizer = json.loads((nano_folder / "tokenizer.json").read_text())
    assert len(tokenizer["model"]["vocab"]) == shape.vocab_size
    assert (
        json.loads((nano_folder / "tokenizer_config.json").read_text())["model_max_length"]
        == shape.max_position_embeddings
    )
