"""``speccast calibrate train-heads`` on a folder of a tiny random model."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from tiny_folder import save_tiny
from tiny_llama import tiny_network

from calibration.decoding.heads import command, store
from calibration.decoding.heads.command import Options, train_heads
from calibration.decoding.network import Network
from calibration.decoding.weights import load
from models.schema import ModelError
from models.strict_yaml import InputError
from models.transformer import from_hf_config

pytestmark = pytest.mark.extras


def silent(*_: object) -> None:
    """Show no progress."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def options(model):
    return Options(str(model), heads=2, draft_layers=2, quick=True)


@pytest.fixture(scope="module")
def trained(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    return folder, train_heads(options, folder, silent)


@pytest.fixture
def network(model):
    return Network(load(str(model), "fp32").model)


def test_heads_json_says_what_was_trained_for_what(trained):
    folder, info = trained
    assert json.loads((folder / "heads.json").read_text()) == info
    assert info["target"] == {"name": "tiny", "hidden": 32, "layers": 3, "vocabulary": 257}
    assert info["text"]["trained_sequences"] + info["text"]["held_out_sequences"] == 20
    assert info["text"]["held_out_sequences"] == 5
    assert set(info["versions"]) == {"speccast", "torch", "transformers"}
    assert list(info["parts"]) == ["medusa", "eagle", "draft"]
    assert list(info["parts"]["medusa"]["top1"]) == ["head 1", "head 2"]
    assert info["parts"]["draft"]["layers"] == 2
    for said in info["parts"].values():
        assert said["seed"] == 0
        assert said["training_s"] >= 0
        assert said["held_out_loss"] <= said["held_out_loss_before"]
        assert all(0 <= share <= 1 for share in said["top1"].values())


def test_what_is_no_longer_needed_is_gone(trained):
    folder, _ = trained
    assert sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()) == [
        "corpus/corpus.jsonl",
        "draft/config.json",
        "draft/layers.safetensors",
        "eagle.safetensors",
        "heads.json",
        "medusa.safetensors",
    ]


def test_trained_parts_load_onto_their_target(trained, network):
    folder, _ = trained
    parts = store.load(folder, network, ("medusa", "eagle", "draft"), "tiny")
    hidden = network.hidden([[5, 6, 7]], network.new_cache(1))
    assert parts.medusa(hidden).shape == (2, 1, 3, 32)
    cache = parts.eagle.new_cache(1)
    assert parts.eagle.features([[6, 7]], hidden[:, :2], cache).shape == (1, 2, 32)
    assert parts.draft.hidden([[5, 6]], parts.draft.new_cache(1)).shape == (1, 2, 32)
    assert parts.draft.model.get_input_embeddings() is network.model.get_input_embeddings()
    assert not any(one.requires_grad for one in parts.medusa.parameters())


def test_loaded_weights_are_the_saved_ones_in_the_targets_type(trained, model):
    from safetensors.torch import load_file

    folder, _ = trained
    parts = store.load(folder, Network(load(str(model), "bf16").model))
    for file, module in (
        ("medusa.safetensors", parts.medusa),
        ("eagle.safetensors", parts.eagle.layer),
        ("draft/layers.safetensors", parts.draft.model),
    ):
        own = dict(module.named_parameters())
        for name, saved in load_file(folder / file).items():
            assert own[name].dtype == torch.bfloat16
            assert torch.equal(own[name], saved.bfloat16()), name


def test_a_draft_is_a_transformer_of_the_simulator(trained):
    folder, _ = trained
    shape = from_hf_config(folder / "draft" / "config.json")
    assert (shape.layers, shape.hidden, shape.vocab) == (2, 32, 257)


def test_parts_of_another_target_are_refused(trained, network):
    folder, _ = trained
    with pytest.raises(ModelError, match="trained for another target: layers 3, here 2") as refused:
        store.load(folder, tiny_network(vocab_size=257, num_hidden_layers=2))
    assert refused.value.key == "--heads"
    with pytest.raises(ModelError, match="another target: name tiny, here other"):
        store.load(folder, network, name="other")
    with pytest.raises(ModelError, match="another target: vocabulary 257, here 97"):
        store.load(folder, tiny_network())


def test_a_missing_part_names_the_command_that_trains_it(network, tmp_path):
    with pytest.raises(
        ModelError, match="has no part 'eagle'; run: speccast calibrate train-heads"
    ):
        store.load(tmp_path, network, ("eagle",), "tiny")
    assert store.load(tmp_path, network)[:3] == (None, None, None)


def test_damaged_files_are_named(trained, network, tmp_path):
    folder, info = trained
    store.write_info(tmp_path, info)
    with pytest.raises(InputError, match=r"medusa\.safetensors: cannot be loaded"):
        store.load(tmp_path, network)
    (tmp_path / "medusa.safetensors").write_bytes((folder / "eagle.safetensors").read_bytes())
    with pytest.raises(InputError, match="does not hold the weights of this part"):
        store.load(tmp_path, network)
    (tmp_path / "heads.json").write_text("{}")
    with pytest.raises(InputError, match=r"heads\.json: parts: is missing"):
        store.load(tmp_path, network)


def test_finished_parts_are_not_trained_again(trained, options, monkeypatch):
    folder, info = trained
    before = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    monkeypatch.setattr(command, "Corpus", None)
    assert train_heads(options, folder, silent) == info
    assert {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize(
    ("changed", "key", "said"),
    [
        ({"heads": 3}, "--out", "has the part 'medusa' trained otherwise: heads 2, now 3"),
        ({"quick": False}, "--out", "trained otherwise: quick True, now False"),
        ({"draft_layers": 3}, "--draft-layers", "must be 1 to 2 layers, got 3"),
    ],
)
def test_other_options_are_refused(trained, options, changed, key, said):
    with pytest.raises(ModelError, match=said) as refused:
        train_heads(options._replace(**changed), trained[0], silent)
    assert refused.value.key == key


def test_an_interrupted_run_goes_on_to_the_same_bytes(trained, options, tmp_path):
    folder, info = trained

    def interrupt(what: str, done: int, _: int) -> None:
        if (what, done) == ("training eagle", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_heads(options, tmp_path, interrupt)
    assert list(store.read_info(tmp_path)["parts"]) == ["medusa"]
    again = train_heads(options, tmp_path, silent)
    for file in ("medusa.safetensors", "eagle.safetensors", "draft/layers.safetensors"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes(), file
    assert again["parts"]["eagle"]["top1"] == info["parts"]["eagle"]["top1"]


def test_parts_are_trained_one_after_the_other_from_the_same_text(options, tmp_path):
    train_heads(options._replace(parts=("eagle",)), tmp_path, silent)
    text = (tmp_path / "corpus" / "corpus.jsonl").stat().st_mtime_ns
    info = train_heads(options._replace(parts=("medusa",)), tmp_path, silent)
    assert set(info["parts"]) == {"eagle", "medusa"}
    assert (tmp_path / "corpus" / "corpus.jsonl").stat().st_mtime_ns == text
    assert list((tmp_path / "corpus").glob("states-*"))


def test_the_command_prints_held_out_accuracies(
    speccast, calibrate_declared, trained, model, tmp_path
):
    folder, info = trained
    given = ("calibrate", "train-heads", "--model", model, "--out", folder, "--quick")
    same = (*given, "--heads", 2, "--draft-layers", 2)
    status, out, err = speccast(*same)
    assert status == 0
    assert f"Trained parts of tiny in {folder}" in out
    assert "Medusa" in out
    assert "head 2" in out
    assert "draft (2 layers)" in out
    assert err == f"wrote {folder}\n"
    status, out, _ = speccast(*same, "--json")
    assert status == 0
    assert json.loads(out)["target"] == info["target"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--parts", "medusa,wheels"), "--parts: must be some of medusa,eagle,draft, got 'wheels'"),
        (("--model", "nothing-there"), "--model: must be 'smollm2-135m' or a folder of weights"),
        (("--heads", 0), "--heads"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    speccast, calibrate_declared, tmp_path, given, said
):
    status, out, err = speccast("calibrate", "train-heads", "--out", tmp_path / "h", *given)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "h").exists()


def test_parts_are_named_in_the_order_they_are_trained():
    assert command.parse_parts("draft, medusa") == ("medusa", "draft")
