// A version: the hash of everything that decides what a model answers.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"
#include "config/model_spec.h"
#include "provision/digest.h"

namespace omni {

// Of what a process is started with: what model.toml says of it, the other files in the model's
// folder, the environment and the weights. What omni alone goes by, such as aliases and scaling, is
// no part of it. Left out too: names that start with a dot, __pycache__, and weights, which count
// by their identity. `weights` maps each weight's path to its identity. Blocking.
Result<std::string> version_of(const ModelSpec& spec, const std::string& environment_hash,
                               const std::map<std::filesystem::path, std::string>& weights,
                               FileDigests& digests);

}  // namespace omni
