// A version: the hash of everything that decides what a model answers.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"
#include "config/model_spec.h"
#include "provision/digest.h"

namespace omni {

// Of the files in the model's folder (model.toml and handler among them), the environment and the
// weights. Left out: names that start with a dot, __pycache__, and weights, which count by their
// identity. `weights` maps each weight's path to its identity. Blocking.
Result<std::string> version_of(const ModelSpec& spec, const std::string& environment_hash,
                               const std::map<std::filesystem::path, std::string>& weights,
                               FileDigests& digests);

}  // namespace omni
