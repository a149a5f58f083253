// What no model uses any more in the state folder: environments, weights, parts, caches, records.
// Safe beside a running daemon. docs/contracts/provision.md.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "config/model_spec.h"

namespace omni {

// What is to be kept beside what live daemons use.
struct GarbageOrder {
  std::filesystem::path state;
  std::set<std::string> models;   // configured ones: what their records name is used
  std::set<std::string> digests;  // that their specs name: parts may lie there without a record
  bool dry_run = false;
};

struct Garbage {
  struct Item {
    std::filesystem::path path;  // below the state folder
    Bytes size;                  // that it frees: without what other names keep
  };
  std::vector<Item> removed;
  std::vector<std::filesystem::path> busy;  // being built or fetched: left alone
  Bytes freed;
};

// An order that keeps what these models use.
GarbageOrder keep_models(std::filesystem::path state, const std::vector<ModelSpec>& models);
// Those that use something, and have no record of what: no daemon has begun to prepare them yet.
std::vector<std::string> unprepared(const std::filesystem::path& state,
                                    const std::vector<ModelSpec>& models);
// Removes, or only finds, what nothing uses. Blocking.
Result<Garbage> collect_garbage(const GarbageOrder& order);

}  // namespace omni
