#include "gateway/body.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "gateway/multipart.h"

namespace omni::gateway {
namespace {

Error too_large(Bytes limit, std::string_view key) {
  return {ErrorCode::body_too_large,
          fmt::format("the body is larger than {} (limits.{})", to_string(limit), key)};
}

// Without either header a request has no body: whoever meant to send one should hear so.
Result<void> require_length(const Request& request) {
  const http::RequestHead& head = request.head();
  if (head.chunked || head.content_length) return {};
  return Error{
      ErrorCode::length_required,
      fmt::format("{} takes a body: send it with Content-Length or chunked encoding", head.path())};
}

bool declared_over(const Request& request, Bytes limit) {
  return request.head().content_length.value_or(0) > static_cast<std::uint64_t>(limit.count());
}

bool over(std::size_t size, Bytes limit) {
  return size > static_cast<std::uint64_t>(limit.count());
}

// Files go to the spool, fields to memory.
class FormBuilder : public MultipartScanner::Sink {
 public:
  explicit FormBuilder(Request& request) : request_(request) {}

  Result<void> begin(PartHead head) override {
    in_file_ = head.is_file;
    if (!is_utf8(head.name) || !is_utf8(head.filename)) {
      return Error{ErrorCode::invalid_request,
                   "the form has a field or file name that is not UTF-8"};
    }
    if (!in_file_) {
      // Two readings of one request: whoever checks it may take the other.
      if (head.name == "model" && form.field("model")) {
        return Error{ErrorCode::invalid_request, "`model` is given twice"};
      }
      form.fields.emplace_back(std::move(head.name), std::string());
      return {};
    }
    TRY(SpoolFile file, SpoolFile::create(request_.services.shared.spool));
    form.files.push_back({std::move(head.name), std::move(head.filename),
                          std::move(head.content_type),
                          std::make_shared<SpoolFile>(std::move(file))});
    return {};
  }

  Result<void> data(std::string_view bytes) override {
    if (in_file_) return form.files.back().content->append(bytes);
    const Bytes limit = request_.config().json_body;
    field_bytes_ += bytes.size();
    if (over(field_bytes_, limit)) {
      return Error{
          ErrorCode::body_too_large,
          fmt::format("the form's fields are larger than {} (limits.json_body)", to_string(limit))};
    }
    CHECK(request_.held.hold(static_cast<std::int64_t>(bytes.size())));
    form.fields.back().second += bytes;
    return {};
  }

  Result<void> end() override {
    if (in_file_ || is_utf8(form.fields.back().second)) return {};
    return Error{ErrorCode::invalid_request,
                 fmt::format("the form's field `{}` is not UTF-8", form.fields.back().first)};
  }

  Form form;

 private:
  Request& request_;
  bool in_file_ = false;
  std::size_t field_bytes_ = 0;
};

Result<void> move_to_file(RawBody& body, Request& request) {
  TRY(SpoolFile file, SpoolFile::create(request.services.shared.spool));
  body.file = std::make_shared<SpoolFile>(std::move(file));
  CHECK(body.file->append(body.held));
  body.held = {};
  request.held.release();
  return {};
}

Result<void> add(RawBody& body, std::string_view piece, Request& request) {
  if (over(body.size() + piece.size(), request.config().file_body)) {
    return too_large(request.config().file_body, "file_body");
  }
  if (!body.file && over(body.size() + piece.size(), request.config().json_body)) {
    CHECK(move_to_file(body, request));
  }
  if (body.file) return body.file->append(piece);
  CHECK(request.held.hold(static_cast<std::int64_t>(piece.size())));
  body.held += piece;
  return {};
}

}  // namespace

asio::awaitable<Result<std::string>> read_held_body(Request& request) {
  CO_CHECK(require_length(request));
  const Bytes limit = request.config().json_body;
  if (declared_over(request, limit)) co_return too_large(limit, "json_body");
  std::string body;
  body.reserve(request.head().content_length.value_or(0) + 64);  // The JSON parser's padding.
  for (;;) {
    CO_TRY(std::string_view piece, co_await request.exchange.read_some());
    if (piece.empty()) co_return body;
    if (over(body.size() + piece.size(), limit)) co_return too_large(limit, "json_body");
    CO_CHECK(request.held.hold(static_cast<std::int64_t>(piece.size())));
    body += piece;
  }
}

asio::awaitable<Result<RawBody>> read_raw_body(Request& request) {
  CO_CHECK(require_length(request));
  if (declared_over(request, request.config().file_body)) {
    co_return too_large(request.config().file_body, "file_body");
  }
  RawBody body;
  for (;;) {
    CO_TRY(std::string_view piece, co_await request.exchange.read_some());
    if (piece.empty()) co_return body;
    CO_CHECK(add(body, piece, request));
  }
}

asio::awaitable<Result<Form>> read_form(Request& request) {
  CO_CHECK(require_length(request));
  CO_TRY(std::string boundary, multipart_boundary(request.head().headers.get("content-type")));
  const Bytes limit = request.config().file_body;
  if (declared_over(request, limit)) co_return too_large(limit, "file_body");
  FormBuilder builder(request);
  MultipartScanner scanner(boundary, builder);
  std::size_t total = 0;
  for (;;) {
    CO_TRY(std::string_view piece, co_await request.exchange.read_some());
    if (piece.empty()) break;
    total += piece.size();
    if (over(total, limit)) co_return too_large(limit, "file_body");
    CO_CHECK(scanner.feed(piece));
  }
  CO_CHECK(scanner.finish());
  co_return std::move(builder.form);
}

const std::string* Form::field(std::string_view name) const {
  auto found =
      std::ranges::find(fields, name, [](const auto& f) -> std::string_view { return f.first; });
  return found == fields.end() ? nullptr : &found->second;
}

const UploadedFile* Form::file(std::string_view name) const {
  auto found = std::ranges::find(files, name, &UploadedFile::name);
  return found == files.end() ? nullptr : &*found;
}

std::string media_type(const http::RequestHead& head) {
  const std::string_view value = head.headers.get("content-type");
  std::string type(value.substr(0, value.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::ranges::transform(type, type.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return type;
}

bool is_json(std::string_view type) {
  return type.empty() || type == "application/json" || type.ends_with("+json") ||
         type == "text/json" || type == "application/x-www-form-urlencoded";
}

}  // namespace omni::gateway
