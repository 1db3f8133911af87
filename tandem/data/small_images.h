#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "tandem/data/dataset.h"

// Sets of small images in the files in which they are published. Each may hold any number of images.
namespace tandem::data {

struct SmallImageOptions {
  std::filesystem::path folder = {};
  int64_t size = 0;  // images are scaled to size x size, 8..1024; 0: as stored
};

/// CIFAR's binary files, images of 3 x 32 x 32: records of one label, 10 classes, or of two, 100 fine classes, of which
/// the second counts, and 3,072 bytes of planes.
///
///   cifar10   DIR or DIR/cifar-10-batches-bin     data_batch_1.bin ... data_batch_5.bin, test_batch.bin; names of the
///                                                 classes: batches.meta.txt, or the published ones
///   cifar100  DIR or DIR/cifar-100-binary         train.bin, test.bin; fine_label_names.txt, or numbers
///
/// Maps the files, and reads every label. Throws SettingsError (size), DataError (a file is missing, empty or no whole
/// number of records; a label out of range; too few names), IoError.
/// Source: Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
Split cifar10(const SmallImageOptions& options);
Split cifar100(const SmallImageOptions& options);

/// IDX files, as MNIST and Fashion-MNIST come, of one grey channel as stored, 0 the background, and 10 classes:
///
///   DIR, DIR/MNIST/raw or DIR/FashionMNIST/raw    train-images-idx3-ubyte, train-labels-idx1-ubyte,
///   t10k-images-idx3-ubyte,
///                                                 t10k-labels-idx1-ubyte; each may end in .gz; a dot may stand before
///                                                 idx
///
/// Maps the files; what is packed is held unpacked. Throws SettingsError (size), DataError (a file is missing or
/// damaged, as parse_idx() and gunzip() say; another number of labels than of images; a label out of range; images of
/// two sizes), IoError. Source: LeCun, Cortes, Burges, MNIST; Xiao, Rasul, Vollgraf 2017, Fashion-MNIST
/// (arXiv:1708.07747).
Split mnist(const SmallImageOptions& options);
Split fashion_mnist(const SmallImageOptions& options);

/// The side of the training images of mnist() or fashion_mnist(); nullopt if there are none, and unless they are square
/// and 8..1024. Throws as these.
std::optional<int64_t> idx_side(const std::filesystem::path& folder);

}  // namespace tandem::data
