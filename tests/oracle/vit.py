"""Runs timm's vision transformers in float64 and saves what they held, saw and gave, as resnet.py does:

    vit.py NAME,CHANNELS,HEIGHT,WIDTH,PATCH,HEADS,EMBEDDING ... FILE

HEADS 0: as published. Besides, positions/stored, and as timm resamples them, positions/ROWSxCOLUMNS. Exits with 77
where timm is missing.
"""
import sys

try:
    import timm
    import torch
    from resnet import Embedded, answer
    from timm.layers import resample_abs_pos_embed
except ImportError as error:
    print(error)
    sys.exit(77)


def trunk_of(name, channels, height, width, patch, heads=0):
    """Without its last layer."""
    chosen = {"num_heads": heads} if heads else {}
    return timm.create_model(f"{name}_patch16_224", in_chans=channels, img_size=(height, width), patch_size=patch,
                             num_classes=0, **chosen)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    everything = {}
    for case in sys.argv[1:-1]:
        name, *numbers = case.split(",")
        channels, height, width, patch, heads, dim = map(int, numbers)
        trunk = trunk_of(name, channels, height, width, patch, heads)
        saved = answer(Embedded(trunk, trunk.num_features, dim), channels, height, width)
        everything |= {f"{name}/{key}": value for key, value in saved.items()}
    stored = torch.randn(1, 1 + 6 * 6, 16)
    everything["positions/stored"] = stored
    for rows, columns in ((3, 5), (8, 8), (1, 2)):
        everything[f"positions/{rows}x{columns}"] = resample_abs_pos_embed(stored, [rows, columns])
    torch.save(everything, sys.argv[-1])


if __name__ == "__main__":
    main()
