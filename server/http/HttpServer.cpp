#include "server/http/HttpServer.h"

#include "server/http/Connection.h"

#include <atomic>
#include <thread>

namespace gpt2c::serve {

struct HttpServer::Impl {
  Impl(Service &service, HttpOptions options) : shared{service, std::move(options)} {}

  void accept();
  void take(tcp::socket socket);

  ConnectionSet shared; ///< outlives the connections, which are the context's
  net::io_context context;
  tcp::acceptor acceptor{net::make_strand(context)};
  net::steady_timer pause{acceptor.get_executor()};
  net::signal_set signals{context};
  std::function<void(int)> onSignal;
  std::vector<std::thread> threads;

  void waitForSignal();
};

void HttpServer::Impl::accept() {
  acceptor.async_accept(
      net::make_strand(context), [this](beast::error_code error, tcp::socket socket) {
        if (error == net::error::operation_aborted || !acceptor.is_open())
          return;
        if (!error)
          take(std::move(socket));
        if (!error)
          return accept();
        pause.expires_after(std::chrono::milliseconds(50)); // no file descriptor is left
        pause.async_wait([this](beast::error_code stopped) {
          if (!stopped)
            accept();
        });
      });
}

void HttpServer::Impl::take(tcp::socket socket) {
  beast::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (shared.count() < size_t(shared.options.maxConnections)) {
    std::make_shared<Connection>(shared, std::move(socket))->run();
    return;
  }
  static constexpr std::string_view full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                                           "Content-Length: 0\r\nConnection: close\r\n\r\n";
  socket.non_blocking(true, ignored);
  socket.write_some(net::buffer(full), ignored);
}

void HttpServer::Impl::waitForSignal() {
  signals.async_wait([this](beast::error_code error, int signal) {
    if (error)
      return;
    onSignal(signal);
    waitForSignal();
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

rt::Result<std::unique_ptr<HttpServer>> HttpServer::listen(Service &service, HttpOptions options) {
  beast::error_code error;
  const net::ip::address address = net::ip::make_address(options.host, error);
  if (error)
    return {rt::Code::Usage, "--host=" + options.host +
                                 " is no address; 127.0.0.1 is this machine "
                                 "alone, 0.0.0.0 every interface"};
  const std::string at = options.host + ":" + std::to_string(options.port);
  const tcp::endpoint endpoint(address, uint16_t(options.port));
  auto impl = std::make_unique<Impl>(service, std::move(options));
  tcp::acceptor &acceptor = impl->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error)
    acceptor.set_option(net::socket_base::reuse_address(true), error);
  if (!error)
    acceptor.bind(endpoint, error);
  if (!error)
    acceptor.listen(net::socket_base::max_listen_connections, error);
  if (error)
    return {rt::Code::Io, "cannot listen at " + at + ": " + error.message()};
  impl->accept();
  service.delivery().dealtOutBy([context = &impl->context](std::function<void()> work) {
    net::post(*context, std::move(work));
  });
  for (int i = 0; i < impl->shared.options.threads; ++i)
    impl->threads.emplace_back([context = &impl->context] { context->run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  impl_->context.stop();
  for (std::thread &thread : impl_->threads)
    thread.join();
  impl_->shared.service.delivery().dealtOutBy(nullptr);
  impl_->shared.service.closeAll();
}

int HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

void HttpServer::drain() {
  net::post(impl_->acceptor.get_executor(), [impl = impl_.get()] {
    beast::error_code ignored;
    impl->acceptor.close(ignored);
  });
  impl_->shared.closeIdle();
}

void HttpServer::onSignals(std::initializer_list<int> signals, std::function<void(int)> handler) {
  for (const int signal : signals)
    impl_->signals.add(signal);
  impl_->onSignal = std::move(handler);
  impl_->waitForSignal();
}

} // namespace gpt2c::serve
