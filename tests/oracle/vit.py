"""Runs timm's vision transformers in float64 and saves what they held, saw and gave, as resnet.py does:

    vit.py NAME,CHANNELS,HEIGHT,WIDTH,PATCH,HEADS,EMBEDDING ... FILE

HEADS 0: as published. Besides, positions/stored, and as timm resamples them, positions/ROWSxCOLUMNS. Exits with 77
where timm is missing.
"""
import sys

try:
    import timm
    import torch
    from resnet import Embedded, answers
    from timm.layers import resample_abs_pos_embed
except ImportError as error:
    print(error)
    sys.exit(77)


def trunk_of(name, channels, height, width, patch, heads=0):
    """Without its last layer."""
    chosen = {"num_heads": heads} if heads else {}
    return timm.create_model(f"{name}_patch16_224", in_chans=channels, img_size=(height, width), patch_size=patch,
                             num_classes=0, **chosen)


def model_of(name, channels, height, width, patch, heads, dim):
    trunk = trunk_of(name, channels, height, width, patch, heads)
    return Embedded(trunk, trunk.num_features, dim), (channels, height, width)


def main():
    everything = answers(sys.argv[1:-1], model_of)
    stored = torch.randn(1, 1 + 6 * 6, 16)
    everything["positions/stored"] = stored
    for rows, columns in ((3, 5), (8, 8), (1, 2)):
        everything[f"positions/{rows}x{columns}"] = resample_abs_pos_embed(stored, [rows, columns])
    torch.save(everything, sys.argv[-1])


if __name__ == "__main__":
    main()
