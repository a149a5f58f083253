// Reading request bodies: held in memory and counted, or spooled to a file as they stream. Either
// way the body can be sent to an engine more than once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/request.h"
#include "gateway/spool_file.h"

namespace omni::gateway {

// The whole body in memory, up to limits.json_body, counted in request.held.
asio::awaitable<Result<std::string>> read_held_body(Request& request);

// A body of unknown size and kind: memory up to limits.json_body, then a file up to
// limits.file_body.
struct RawBody {
  std::string held;
  std::shared_ptr<SpoolFile> file;  // set: the body is there. Shared by the attempts to send it
  std::uint64_t size() const { return file ? file->size() : held.size(); }
};
asio::awaitable<Result<RawBody>> read_raw_body(Request& request);

struct UploadedFile {
  std::string name;
  std::string filename;
  std::string content_type;
  std::shared_ptr<SpoolFile> content;  // shared by the attempts to send it
};
struct Form {
  std::vector<std::pair<std::string, std::string>> fields;
  std::vector<UploadedFile> files;

  const std::string* field(std::string_view name) const;
  const UploadedFile* file(std::string_view name) const;
};
// A multipart form: fields in memory (up to limits.json_body together), files spooled as they come.
asio::awaitable<Result<Form>> read_form(Request& request);

// "application/json; charset=utf-8" → "application/json", in lower case.
std::string media_type(const http::RequestHead& head);
// Declared JSON, or what curl says of a body when it is told nothing.
bool is_json(std::string_view media_type);

}  // namespace omni::gateway
