// Jobs by key that are run once at a time: the first caller starts the job, callers who come while
// it runs wait for the same result, and it is cancelled when the last of them has left. Lives on
// one loop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "provision/process.h"

namespace omni {

class SharedJobs {
 public:
  using Product = Result<std::filesystem::path>;
  using Job = std::function<asio::awaitable<Product>(LineSink progress)>;

  explicit SharedJobs(asio::io_context& loop);
  ~SharedJobs();

  // `progress` gets the job's lines while this caller waits. Cancelling the last caller ends the
  // job, and the call returns when it has ended.
  asio::awaitable<Product> run(std::string key, LineSink progress, Job job);

 private:
  struct Flight;
  class Passenger;
  static asio::awaitable<void> fly(std::shared_ptr<Flight> flight, Job job);

  asio::io_context& loop_;
  // Shared with the running job, which may outlive this object by its last steps.
  using Flights = std::map<std::string, std::shared_ptr<Flight>>;
  std::shared_ptr<Flights> flights_;
};

}  // namespace omni
