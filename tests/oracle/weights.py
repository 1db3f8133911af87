"""Weights between torchvision or timm and Tandem, as files:

    weights.py make FOLDER FILE     writes FOLDER/NAME.safetensors of their networks with random weights: the
                                    entries of the state dict, and those of an embedding behind it
    weights.py check FOLDER FILE    until there is FOLDER/end, reads each FOLDER/NAME.*.safetensors back and removes it:
                                    the network's entries into their own classes, which must lack nothing but its
                                    last layer

FILE gets images and embeddings in evaluation mode, behind NAME/ or behind the name of the file that was read. Exits
with 77 where torchvision, timm or safetensors is missing.
"""
import pathlib
import sys
import time

try:
    import torch
    from resnet import Embedded
    from safetensors.torch import load_file, save_file
    from torch import nn
    from torchvision.models import resnet as tv
    from vit import trunk_of
except ImportError as error:
    print(error)
    sys.exit(77)

SIZE, PATCH, EMBEDDING = 40, 8, 16
LAST = {"resnet18": "fc", "resnet50": "fc", "vit_tiny": "head"}  # their last layers, which an embedding replaces
NAMES = tuple(LAST)


def images_of(name):
    return torch.rand(4, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(NAMES.index(name)))


def network(name):
    """With a last layer for 1,000 classes."""
    if LAST[name] == "fc":
        return getattr(tv, name)(weights=None)
    trunk = trunk_of(name, 3, SIZE, SIZE, PATCH)
    trunk.reset_classifier(1000)
    return trunk


def embedded(trunk, name):
    features = getattr(trunk, LAST[name]).in_features
    setattr(trunk, LAST[name], nn.Identity())
    return Embedded(trunk, features, EMBEDDING)


@torch.no_grad()
def embeddings(model, name):
    model.eval()
    model.trunk[0].eval()
    return model(images_of(name))


@torch.no_grad()
def make(folder):
    answer = {}
    for name in NAMES:
        trunk = network(name)
        last = {f"{LAST[name]}.{key}": value for key, value in getattr(trunk, LAST[name]).state_dict().items()}
        model = embedded(trunk, name)
        for key, value in model.state_dict().items():
            if "running" in key or ("bn" in key or "norm" in key) and value.is_floating_point():
                value.uniform_(0.5, 1.5)
        save_file(model.state_dict() | last, folder / f"{name}.safetensors")
        answer |= {f"{name}/images": images_of(name), f"{name}/embeddings": embeddings(model, name)}
    return answer


def check_file(file):
    name, state = file.name.split(".")[0], load_file(file)
    own = ("embedding", "head.")
    trunk = network(name)
    entries = {key: value for key, value in state.items() if not key.startswith(own)}
    wrong = trunk.load_state_dict(entries, strict=False)
    last = [f"{LAST[name]}.weight", f"{LAST[name]}.bias"]
    assert wrong.missing_keys == last and not wrong.unexpected_keys, (file, wrong)
    model = embedded(trunk, name)
    wrong = model.load_state_dict(state, strict=False)
    assert not wrong.missing_keys and wrong.unexpected_keys == ["head.weight"], (file, wrong)
    return embeddings(model, name)


def check(folder):
    answer = {}
    while not (folder / "end").exists():
        for file in sorted(folder.glob("*.*.safetensors")):
            answer[f"{file.name}/embeddings"] = check_file(file)
            file.unlink()
        time.sleep(0.02)
    return answer


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    step, folder, file = sys.argv[1:]
    torch.save({"make": make, "check": check}[step](pathlib.Path(folder)), file)


if __name__ == "__main__":
    main()
