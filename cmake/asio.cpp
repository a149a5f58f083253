// Asio and Beast are header-only by default; compiling them here once keeps every other file quick
// to build.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
