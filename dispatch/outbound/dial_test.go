package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// lookup is a function as a Resolver.
type lookup func(ctx context.Context, host string) ([]netip.Addr, error)

func (f lookup) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

// answers returns a resolver that always resolves to the addresses.
func answers(addrs ...string) lookup {
	var parsed []netip.Addr
	for _, a := range addrs {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return func(context.Context, string) ([]netip.Addr, error) { return parsed, nil }
}

// TestProxyOfTheEnvironmentIsIgnored is case 25 of the security list.
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	proxy := serveAnswer(t, answerOK)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	c := newTestClient(t, Options{Guard: mustGuard(t), Resolver: answers("10.0.0.1")})
	expect(t, c.Send(t.Context(), newRequest("http://shop.example/")), "blocked failed")
	if n := proxy.conns.Load(); n != 0 {
		t.Errorf("the proxy got %d connections", n)
	}
}

// failing returns a resolver with one error for the probe's name and another for all other names.
func failing(host, probe error) lookup {
	return func(_ context.Context, name string) ([]netip.Addr, error) {
		if name == probeName {
			return nil, probe
		}
		return nil, host
	}
}

// TestFailures covers errors that a test cannot cause on every machine: errors of a lookup and of the probe
// that follows, and errors of dials in the kernel's words. It also sends to blocked and silent addresses
// (case 28): their errors contain no address and no port.
func TestFailures(t *testing.T) {
	t.Parallel()
	lookups := map[string]*net.DNSError{
		"no-such-host": {Err: "no such host", IsNotFound: true},
		"misbehaving":  {Err: "server misbehaving", IsTemporary: true},
		"silence":      {Err: "i/o timeout", IsTimeout: true, IsTemporary: true},
		"refused":      {Err: "read udp 127.0.0.1:40000->127.0.0.1:53: read: connection refused"},
		"unreachable":  {Err: "dial udp 192.0.2.53:53: connect: network is unreachable"},
		"no-files":     {Err: "dial udp 192.0.2.53:53: socket: too many open files"},
	}
	silent := serveRaw(t, silence)
	hosts := map[string]net.IP{"v4": net.IPv4(192, 0, 2, 1), "v6": net.ParseIP("2606:4700::1")}
	transcript.Run(t, "testdata/failures.txt", func(line string) string {
		words := strings.Fields(line)
		if words[0] == "lookup" {
			resolver := answers()
			if len(words) > 1 {
				resolver = failing(lookups[words[1]], lookups[words[2]])
			}
			c := newTestClient(t, Options{Guard: mustGuard(t), Resolver: resolver})
			return describe(t, c.Send(t.Context(), newRequest("http://shop.example/")))
		}
		if words[0] == "send" {
			r := newRequest(strings.Replace(words[1], ":SILENT", silent.Port, 1))
			r.Timeout = time.Second
			return describe(t, newTestClient(t, Options{Resolver: answers(words[2:]...)}).Send(t.Context(),
				r))
		}
		failed := errors.New(line)
		if host := hosts[words[1]]; host != nil {
			errno := syscall.Errno(1)
			for text := strings.Join(words[2:], " "); errno.Error() != text; errno++ {
			}
			failed = &net.OpError{
				Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: host, Port: 443},
				Err: os.NewSyscallError(words[0], errno),
			}
		} else if line == context.DeadlineExceeded.Error() {
			failed = context.DeadlineExceeded
		}
		a := &attempt{Context: t.Context()}
		r := Response{StartedAt: time.Now(), EndedAt: time.Now()}
		r.fail(classifyError(t.Context(), a, fmt.Errorf("wrapped: %w", failed), false))
		return describe(t, r)
	})
}

// TestNameServersFallSilent checks that a lookup is a local failure as soon as the name servers stop
// answering. A name that alone is silent is not, because other lookups are answered while it waits.
func TestNameServersFallSilent(t *testing.T) {
	t.Parallel()
	var dead atomic.Bool
	started := make(chan string, 10)
	c := newTestClient(t, Options{Guard: mustGuard(t),
		Resolver: lookup(func(ctx context.Context, host string) ([]netip.Addr, error) {
			// read before the send, which reports that this lookup has started
			silent := dead.Load() || host == "silent.example"
			started <- host
			if silent {
				<-ctx.Done()
				return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true, UnwrapErr: ctx.Err()}
			}
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		})})
	send := func(host string) Response {
		r := newRequest("http://" + host + "/")
		r.Timeout = time.Second
		return c.Send(t.Context(), r)
	}
	expect(t, send("other.example"), "dns_not_found failed")
	silent := send("silent.example")
	expect(t, silent, "dns_error failed, timed out")
	if silent.Timings.DNS <= 0 {
		t.Errorf("timings %+v", silent.Timings)
	}
	expect(t, send("other.example"), "dns_not_found failed")
	dead.Store(true)
	const local = "local_infra failed, uncharged, local failure"
	expect(t, send("shop.example"), local)
	expect(t, send("other.example"), local)
	// The first lookup starts before the servers recover, and another one is answered while it waits. The
	// second starts after the recovery.
	for len(started) > 0 {
		<-started
	}
	waited := make(chan Response, 1)
	go func() { waited <- send("shop.example") }()
	<-started
	dead.Store(false)
	expect(t, send("other.example"), "dns_not_found failed")
	expect(t, <-waited, local)
	expect(t, send("silent.example"), "dns_error failed, timed out")
}

// TestCanceledAttemptDoesNotWaitForTheProbe checks that an attempt ends with its context, even during a
// probe.
func TestCanceledAttemptDoesNotWaitForTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, Options{Guard: mustGuard(t),
			Resolver: lookup(func(ctx context.Context, _ string) ([]netip.Addr, error) {
				<-ctx.Done()
				return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true, UnwrapErr: ctx.Err()}
			})})
		r := newRequest("http://shop.example/")
		r.Timeout = 10 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		const within = 6*time.Second + probeTimeout/2 // the lookup has three fifths of the timeout
		time.AfterFunc(within, cancel)
		got := c.Send(ctx, r)
		expect(t, got, "interrupted failed, uncharged")
		if took := got.EndedAt.Sub(got.StartedAt); took != within {
			t.Errorf("it took %s, and was interrupted after %s", took, within)
		}
		time.Sleep(probeTimeout) // the probe must end within the bubble
	})
}

func TestBothFamiliesAreTried(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, answerOK)
	v4, v6 := netip.MustParseAddrPort(srv.Addr), netip.MustParseAddrPort("[::1]"+srv.Port)
	for _, addrs := range [][]netip.AddrPort{{v4}, {v6, v4}, {v4, v6}, {v6, v6, v4}} {
		c, err := dialParallel(t.Context(), &net.Dialer{}, addrs)
		if err != nil {
			t.Errorf("%v: %v", addrs, err)
			continue
		}
		if got := c.RemoteAddr().String(); got != v4.String() {
			t.Errorf("%v: connected to %s", addrs, got)
		}
		c.Close()
	}
	if _, err := dialParallel(t.Context(), &net.Dialer{}, []netip.AddrPort{v6, v6}); err == nil {
		t.Error("connected to an address without a listener")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dialParallel(canceled, &net.Dialer{}, []netip.AddrPort{v6, v4}); err == nil {
		t.Error("connected after the context had ended")
	}
}
