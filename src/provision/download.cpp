#include "provision/download.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/multiple_exceptions.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/files.h"
#include "provision/disk_space.h"
#include "provision/retries.h"
#include "provision/workers.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

constexpr Duration kLook = std::chrono::milliseconds(20);  // at a part that may grow too large
constexpr int kHttpError = 22;                             // of curl: a status of 400 and above
constexpr int kWriteError = 23;
constexpr int kRangeIgnored = 33;
constexpr int kTooManyRedirects = 47;
constexpr int kProtocolRefused = 1;

fs::path etag_of(const fs::path& part) { return part.string() + ".etag"; }

Bytes size_of(const fs::path& part) {
  struct stat info = {};
  return ::stat(part.c_str(), &info) == 0 ? Bytes(info.st_size) : Bytes();
}

// The whole file's size by the response that carries it, or nothing.
std::optional<Bytes> total_of(const CurlReply& reply) {
  const HttpHead* head = reply.head();
  if (head == nullptr) return std::nullopt;
  std::string text;
  if (head->status == 200) text = head->field("content-length");
  if (head->status == 206) {
    const std::string range = head->field("content-range");  // "bytes 100-199/200"
    if (const std::size_t slash = range.find('/'); slash != range.npos)
      text = range.substr(slash + 1);
  }
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) {
    return std::nullopt;
  }
  return Bytes(std::stoll(text));
}

// Notes whose part this is, so that the next try asks for the rest of that file and no other. Only
// a strong ETag names every byte.
Result<void> note_etag(const fs::path& part, const CurlReply& reply) {
  const HttpHead* head = reply.head();
  if (head == nullptr || head->status != 200) return {};
  const std::string etag = head->field("etag");
  if (etag.starts_with('"')) return write_file_atomic(etag_of(part), etag);
  ::unlink(etag_of(part).c_str());
  return {};
}

void discard(const fs::path& part) {
  ::unlink(part.c_str());
  ::unlink(etag_of(part).c_str());
}

// One file's tries.
class Fetch {
 public:
  Fetch(asio::thread_pool& workers, Curl curl, Download file, DownloadLimits limits,
        LineSink progress)
      : workers_(workers),
        curl_(std::move(curl)),
        file_(std::move(file)),
        limits_(limits),
        progress_(std::move(progress)),
        retries_(limits) {}

  asio::awaitable<Result<Downloaded>> run();

 private:
  asio::awaitable<Result<void>> attempt();
  asio::awaitable<Error> watch();
  Error too_long(Bytes now) const;
  Result<void> check_space() const;
  asio::awaitable<Result<void>> prepare_next();
  Error failure() const;

  asio::thread_pool& workers_;
  Curl curl_;
  Download file_;
  DownloadLimits limits_;
  LineSink progress_;
  Retries retries_;
  std::shared_ptr<CurlReply> reply_;  // of the running or last try; with curl's output
  Bytes before_;                      // of the part, when the try began
  Bytes most_;                        // that any try has reached
  bool pieced_ = false;
};

// Of a size that nobody knows, the margin must be left.
Result<void> Fetch::check_space() const {
  const Bytes there = size_of(file_.part);
  const Bytes missing = std::max(Bytes(), file_.size.value_or(there) - there);
  return check_disk_space(file_.part.parent_path(), file_.name, missing, limits_.margin);
}

// Reports while curl runs, and ends it when the file turns out to be too large for the disk, or
// larger than it should be: a server may send without end.
asio::awaitable<Error> Fetch::watch() {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const Duration look = std::min<Duration>(limits_.report, kLook);
  bool noted = false;
  TimePoint reported = Clock::now();
  Bytes last = before_;
  for (;;) {
    timer.expires_after(look);
    auto token = asio::use_awaitable;
    co_await timer.async_wait(token);
    if (!noted && total_of(*reply_)) {
      noted = true;
      if (!file_.size) file_.size = total_of(*reply_);
      auto note = [part = file_.part, reply = *reply_] { return note_etag(part, reply); };
      auto noting = co_await on_workers(workers_, note);
      if (!noting.ok()) co_return noting.error();
    }
    const Bytes now = size_of(file_.part);
    if (file_.size && now > *file_.size) co_return too_long(now);
    auto enough = check_space();
    if (!enough.ok()) co_return enough.error();
    const TimePoint time = Clock::now();
    if (time - reported < limits_.report) continue;
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(time - reported).count();
    const Bytes speed((now - last).count() * 1000 / std::max<std::int64_t>(1, milliseconds));
    if (now > last) progress_(progress_line(file_.name, now, file_.size, speed));
    last = now;
    reported = time;
  }
}

Error Fetch::too_long(Bytes now) const {
  discard(file_.part);
  return {ErrorCode::provision_failed,
          fmt::format("cannot download {}: the server sent {} and more, and the file has {}",
                      file_.shown, to_string(now), to_string(*file_.size))};
}

asio::awaitable<Result<void>> Fetch::attempt() {
  using asio::experimental::awaitable_operators::operator||;
  auto look = [part = file_.part]() -> Result<std::string> {
    auto etag = read_file(etag_of(part));
    return etag.ok() ? *etag : std::string();
  };
  CO_TRY(std::string etag, co_await on_workers(workers_, look));
  before_ = size_of(file_.part);
  most_ = std::max(most_, before_);
  CurlRequest request{.url = file_.url, .token = file_.token, .output = file_.part};
  if (before_ > Bytes()) {
    request.from = before_;
    request.if_range = etag;
    pieced_ = true;
  }
  reply_ = std::make_shared<CurlReply>();
  auto both = curl_.run(std::move(request), limits_, file_.lock, reply_) || watch();
  std::variant<Result<void>, Error> ended;
  try {
    ended = co_await std::move(both);
  } catch (const asio::multiple_exceptions& failure) {  // this call was cancelled, so both were
    std::rethrow_exception(failure.first_exception());
  }
  if (ended.index() == 1) co_return std::get<1>(ended);
  auto note = [part = file_.part, reply = *reply_] { return note_etag(part, reply); };
  auto noted = co_await on_workers(workers_, note);
  co_return std::get<0>(ended).ok() ? noted : std::get<0>(ended);
}

// After a failed try: what is wrong for good is an error, else the pause before the next.
asio::awaitable<Result<void>> Fetch::prepare_next() {
  const Bytes now = size_of(file_.part);
  const int code = reply_->exit.value;
  // A server that does not know ranges, or a file that has changed since, or has shrunk.
  const bool start_over = before_ > Bytes() && (code == kRangeIgnored || reply_->status() == 416);
  if (start_over) {
    discard(file_.part);
    pieced_ = false;
    progress_(fmt::format("{}: the server has no rest of this file: starting over", file_.name));
  } else if (!reply_->is_transient()) {
    co_return failure();
  }
  const bool gained = now > most_;
  most_ = std::max(most_, now);
  if (gained) retries_.start_again();
  const auto pause = retries_.next();
  if (!pause) co_return failure();
  if (start_over) co_return Result<void>();
  const std::string why = reply_->message.empty() ? to_string(reply_->exit) : reply_->message;
  progress_(fmt::format("{}: {} after {}: trying again in {}", file_.name, why, to_string(now),
                        to_string(*pause)));
  asio::steady_timer timer(co_await asio::this_coro::executor, *pause);
  auto token = asio::use_awaitable;
  co_await timer.async_wait(token);
  co_return Result<void>();
}

Error Fetch::failure() const {
  const int code = reply_->exit.value;
  const int status = reply_->status();
  if (!reply_->exit.by_signal && code == kWriteError) {
    // It does not say why; the disk does.
    auto space = check_disk_space(file_.part.parent_path(), file_.name,
                                  file_.size.value_or(size_of(file_.part)) - size_of(file_.part),
                                  Bytes(1 << 20));
    if (!space.ok()) return space.error();
    return {ErrorCode::io_error,
            fmt::format("cannot write {}: {}", file_.part.string(), reply_->message)};
  }
  std::string why = reply_->message.empty() ? to_string(reply_->exit) : reply_->message;
  if (code == kHttpError) {
    why = fmt::format("the server answers {}", status);
    if (status == 404 || status == 410) why += ": correct the address in model.toml";
    if (status == 401 || status == 403) why += ": it does not give this file to everybody";
  }
  if (code == kProtocolRefused) {
    why = "it leads to an address without encryption, which is not followed";
  }
  if (code == kTooManyRedirects) why = "it leads from address to address without end";
  return {ErrorCode::provision_failed, fmt::format("cannot download {}: {}", file_.shown, why)};
}

asio::awaitable<Result<Downloaded>> Fetch::run() {
  CO_CHECK(check_space());
  for (;;) {
    CO_CHECK(co_await attempt());
    if (reply_->exit.success()) co_return Downloaded{pieced_};
    CO_CHECK(co_await prepare_next());
  }
}

}  // namespace

std::string progress_line(std::string_view name, Bytes done, std::optional<Bytes> total,
                          Bytes per_second) {
  std::string amount = to_string(done);
  if (total && *total > Bytes()) {
    const std::string all = to_string(*total);
    // "1.2 of 4.7 GiB": a unit that both have stands once.
    const std::string unit = all.substr(all.find(' '));
    if (amount.ends_with(unit)) amount.resize(amount.size() - unit.size());
    amount += fmt::format(" of {}, {} %", all, done.count() * 100 / total->count());
  }
  return fmt::format("{}: {}, {}/s", name, amount, to_string(per_second));
}

asio::awaitable<Result<Downloaded>> download(asio::thread_pool& workers, Curl curl, Download file,
                                             DownloadLimits limits, LineSink progress) {
  Fetch fetch(workers, std::move(curl), std::move(file), limits, std::move(progress));
  auto fetched = co_await fetch.run();
  co_return fetched;
}

}  // namespace omni
