-- Posts the bodies in a file, one a line, one after the other and over again; prints one line of JSON at the end.

local requests, position = {}, 0

function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  for line in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format(nil, nil, nil, line)
  end
end

function request()
  position = position % #requests + 1
  return requests[position]
end

function done(summary, latency)
  local form = '{"requests": %d, "seconds": %.6f, "mean_ms": %.4f, "p50_ms": %.4f, "p95_ms": %.4f, "p99_ms": %.4f, '
    .. '"largest_ms": %.4f, "errors": {"status": %d, "timeout": %d, "connect": %d, "read": %d, "write": %d}}\n'
  local e = summary.errors
  io.write(form:format(
    summary.requests, summary.duration / 1e6, latency.mean / 1e3, latency:percentile(50) / 1e3,
    latency:percentile(95) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
    e.status, e.timeout, e.connect, e.read, e.write))
end
