#include "node/uid_pool.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <set>

#include "base/files.h"

namespace omni::node {

Result<UidPool> UidPool::load(std::filesystem::path file, uid_t first, uid_t last) {
  UidPool pool(std::move(file), first, last);
  if (!std::filesystem::exists(pool.file_)) return pool;
  TRY(const std::string text, read_file(pool.file_));
  boost::system::error_code status;
  const auto value = boost::json::parse(text, status);
  if (status || !value.is_object()) {
    return Error{ErrorCode::io_error,
                 fmt::format("{} is not a JSON object; remove it to give every model a new uid",
                             pool.file_.string())};
  }
  for (const auto& [model, uid] : value.as_object()) {
    // A changed uid_range gives new uids.
    if (uid.is_int64() && uid.as_int64() >= first && uid.as_int64() <= last) {
      pool.uids_[std::string(model)] = static_cast<uid_t>(uid.as_int64());
    }
  }
  return pool;
}

Result<uid_t> UidPool::of(const std::string& model) {
  if (auto it = uids_.find(model); it != uids_.end()) return it->second;
  std::set<uid_t> used;
  for (const auto& [name, uid] : uids_) used.insert(uid);
  uid_t free = first_;
  for (uid_t uid : used) {
    if (uid == free) ++free;
  }
  if (free > last_) {
    return Error{
        ErrorCode::invalid_config,
        fmt::format("no uid left for model \"{}\" in uid_range {}-{}: widen it in omni.toml", model,
                    first_, last_)};
  }
  uids_[model] = free;
  boost::json::object json;
  for (const auto& [name, uid] : uids_) json[name] = uid;
  CHECK(write_file_atomic(file_, boost::json::serialize(json) + "\n", 0600));
  return free;
}

}  // namespace omni::node
