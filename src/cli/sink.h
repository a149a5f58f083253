// Where `omni run` puts an answer: the console or a file.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "cli/console.h"

namespace omni::cli {

class Sink {
 public:
  // An empty path or "-": the console's output. The file is made when the first byte comes, so
  // that a refused request leaves an old one alone.
  Sink(Console& console, std::string path);
  // An answer that broke off leaves no file, and a terminal at the start of a line.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  bool is_terminal() const { return path_.empty() && console_.output_is_terminal(); }
  Result<void> write(std::string_view data);
  // The answer is whole. `text`: on the console it ends its last line.
  Result<void> finish(bool text);

 private:
  Console& console_;
  std::string path_;
  Fd file_;
  char last_ = '\n';
};

}  // namespace omni::cli
