// The bytes a connection has read and not yet used. Starts small, since most connections are idle,
// and grows when reads fill it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace omni::http {

class InputBuffer {
 public:
  std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
  bool empty() const { return begin_ == end_; }

  void consume(std::size_t count) {
    begin_ += count;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  // Room for the next read; earlier views end here.
  std::span<char> prepare() {
    if (begin_ > 0) resize(capacity_);
    if (end_ == capacity_ || (filled_ && capacity_ < kLarge)) resize(grown());
    return {data_.get() + end_, capacity_ - end_};
  }
  void commit(std::size_t count) {
    filled_ = end_ + count == capacity_;
    end_ += count;
  }
  // Gives a large buffer back while nothing is in it: between two requests.
  void shrink() {
    if (!empty() || capacity_ <= kSmall) return;
    data_.reset();
    capacity_ = 0;
    filled_ = false;
  }

 private:
  static constexpr std::size_t kSmall = 4 * 1024;   // a usual head with a small body
  static constexpr std::size_t kLarge = 64 * 1024;  // larger reads gain nothing on loopback

  std::size_t grown() const { return capacity_ == 0 ? kSmall : capacity_ * 4; }
  void resize(std::size_t capacity) {
    const std::size_t size = end_ - begin_;
    if (capacity == capacity_) {
      std::memmove(data_.get(), data_.get() + begin_, size);
    } else {
      auto larger = std::make_unique_for_overwrite<char[]>(capacity);
      if (size > 0) std::memcpy(larger.get(), data_.get() + begin_, size);
      data_ = std::move(larger);
      capacity_ = capacity;
    }
    begin_ = 0;
    end_ = size;
  }

  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool filled_ = false;  // the last read left no room: there is likely more
};

}  // namespace omni::http
