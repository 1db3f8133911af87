#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "tandem/data/dataset.h"
#include "tandem/data/image/image_planes.h"
#include "tandem/data/record/face_list.h"

namespace tandem::data {

/// A folder of labelled images in RecordIO, as InsightFace packs its face sets:
///
///   DIR/train.rec   image records (record_io.h, image_record.h); the class is the first label
///   DIR/train.idx   `key TAB offset`; without it the records are indexed by one pass, keys 0, 1, ... in order
///   DIR/property    `classes,height,width`; without it the classes are counted: largest label + 1
///
/// Which records are images: list_faces() in face_list.h.
struct FaceRecordOptions {
  std::filesystem::path folder = {};
  /// Images are scaled to size x size, 8..1024. 0: to height x width of the property or, without it, of the first
  /// image.
  int64_t size = 0;
  int64_t hold_out = 5;  // per class, by key, as in ImageFolderOptions; 0: nothing, Split::test is null
  ImageForm form = {};   // its height and width are replaced as `size` says
};

/// The contents of DIR/property; nullopt if there is no such file. Throws DataError (other contents), IoError.
std::optional<FaceProperty> face_property(const std::filesystem::path& folder);

/// The side of the images according to DIR/property. Returns nullopt if there is no such file, if the images are not
/// square, or if images cannot be scaled to that side. Throws as face_property() does.
std::optional<int64_t> face_side(const std::filesystem::path& folder);

/// Maps the records and reads the label and the image header of each once: the first opening reads a page or two of the
/// file for each image. Pixels are decoded when read. Memory: 16 bytes an image, twice that while opening.
/// Throws SettingsError (size, hold_out), DataError (no train.rec, a damaged record, index or property, a label that is
/// not a whole number in 0..classes-1, more than 2^24 classes, missing images, an invalid image header, one image in
/// each class), IoError.
/// Split::summary says so if the images are scaled to another size than the property's.
Split face_records(const FaceRecordOptions& options);

}  // namespace tandem::data
