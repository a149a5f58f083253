// One uid per model, kept over restarts in <state>/uids.json, so that a model's cache stays its
// own.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace omni::node {

class UidPool {
 public:
  static Result<UidPool> load(std::filesystem::path file, uid_t first, uid_t last);
  // The model's uid; a new one is written to the file before it is returned.
  Result<uid_t> of(const std::string& model);

 private:
  UidPool(std::filesystem::path file, uid_t first, uid_t last)
      : file_(std::move(file)), first_(first), last_(last) {}

  std::filesystem::path file_;
  uid_t first_;
  uid_t last_;
  std::map<std::string, uid_t> uids_;
};

}  // namespace omni::node
