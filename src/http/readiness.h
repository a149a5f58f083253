// Tells the streams of one I/O thread what their sockets are ready for. Each socket is registered
// once, edge-triggered: a stream keeps what it was told and so needs no read that finds nothing,
// where Asio's own sockets try one before every wait, which at small messages is a third of all
// system calls. The end of the peer is seen without a read, also behind bytes nobody wants yet.
//
// A service of its loop (use_service<Readiness>(loop)): all servers and clients there share it, and
// what still waits when the loop is destroyed is destroyed with it. One thread's; no lock.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/intrusive/list.hpp>

namespace omni::http {

namespace asio = boost::asio;

class Readiness final : public asio::execution_context::service {
 public:
  struct KnownTag;
  struct DueTag;
  template <typename Tag>
  using Hook =
      boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                       boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

  // One socket. Its owner calls remove() before the socket is closed or given away.
  class Entry : public Hook<KnownTag>, public Hook<DueTag> {
   public:
    virtual ~Entry() = default;

   protected:
    // Notes what the socket is ready for (EPOLLIN, ...); no more, since others are noted after it.
    virtual void note(std::uint32_t events) = 0;
    // Acts on what was noted, in a turn of the loop of its own. May destroy any entry.
    virtual void on_ready() = 0;
    // The loop ends: drops what waits. May destroy any entry.
    virtual void abandon() = 0;

   private:
    friend Readiness;
  };

  static asio::execution_context::id id;
  explicit Readiness(asio::execution_context& loop);

  // Starts to watch for input and the peer's end. 0 or an errno.
  int add(Entry& entry, int fd);
  // Watches for room to write as well, or no more. Room that is there already is told, too.
  void watch_writes(Entry& entry, int fd, bool on);
  // After it, nothing is told of the entry.
  void remove(Entry& entry, int fd);
  // It is calling on_ready(): what had come a moment ago has been noted.
  bool in_turn() const { return in_turn_; }
  // on_ready() soon, but not before the caller has returned to the loop.
  void make_due(Entry& entry);

 private:
  template <typename Tag>
  using List = boost::intrusive::list<Entry, boost::intrusive::base_hook<Hook<Tag>>,
                                      boost::intrusive::constant_time_size<false>>;

  void shutdown() override;
  void await_events();
  void turn();

  asio::io_context& loop_;
  asio::posix::basic_stream_descriptor<asio::io_context::executor_type> epoll_;
  std::array<epoll_event, 256> events_;
  bool awaiting_ = false;
  bool posted_ = false;  // a turn
  bool in_turn_ = false;
  List<KnownTag> known_;
  List<DueTag> due_;
};

}  // namespace omni::http
