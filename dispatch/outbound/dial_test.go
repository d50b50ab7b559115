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

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// lookup is a resolver made of a function.
type lookup func(ctx context.Context, host string) ([]netip.Addr, error)

func (f lookup) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

// answers always resolves to the addresses.
func answers(addrs ...string) lookup {
	var parsed []netip.Addr
	for _, a := range addrs {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return func(context.Context, string) ([]netip.Addr, error) { return parsed, nil }
}

// TestProxyOfTheEnvironmentIsIgnored: case 25.
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	proxy := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	c := newTestClient(t, Options{Guard: mustGuard(t), Resolver: answers("10.0.0.1")})
	want{class: store.ClassBlocked}.check(t, c.Send(t.Context(), newRequest("http://shop.example/")))
	if n := proxy.conns.Load(); n != 0 {
		t.Errorf("the proxy got %d connections", n)
	}
}

// failing is a resolver whose answer depends on the name: the probe's may differ.
func failing(host, probe error) lookup {
	return func(_ context.Context, name string) ([]netip.Addr, error) {
		if name == probeName {
			return nil, probe
		}
		return nil, host
	}
}

func TestDNSFailures(t *testing.T) {
	t.Parallel()
	notFound := &net.DNSError{Err: "no such host", Name: "shop.example", IsNotFound: true}
	misbehaving := &net.DNSError{Err: "server misbehaving", Name: "shop.example", IsTemporary: true}
	timeout := &net.DNSError{Err: "i/o timeout", Name: "shop.example", IsTimeout: true, IsTemporary: true}
	refused := &net.DNSError{Err: "read udp 127.0.0.1:40000->127.0.0.1:53: read: connection refused", Name: "shop.example"}
	unreachable := &net.DNSError{Err: "dial udp 192.0.2.53:53: connect: network is unreachable", Name: "shop.example"}
	noFiles := &net.DNSError{Err: "dial udp 192.0.2.53:53: socket: too many open files", Name: "shop.example"}
	local := want{class: store.ClassLocalInfra, uncharged: true, local: true}
	for name, x := range map[string]struct {
		resolver lookup
		want     want
	}{
		"no such host":                  {failing(notFound, notFound), want{class: store.ClassDNSNotFound}},
		"no address":                    {answers(), want{class: store.ClassDNSNotFound}},
		"server failure":                {failing(misbehaving, notFound), want{class: store.ClassDNSError}},
		"this name alone is silent":     {failing(timeout, notFound), want{class: store.ClassDNSError, timedOut: true}},
		"every name is silent":          {failing(timeout, timeout), local},
		"the resolver refuses":          {failing(refused, refused), local},
		"the resolver is out of reach":  {failing(unreachable, unreachable), local},
		"no file descriptors to ask it": {failing(noFiles, noFiles), local},
	} {
		c := newTestClient(t, Options{Guard: mustGuard(t), Resolver: x.resolver})
		r := c.Send(t.Context(), newRequest("http://shop.example/"))
		t.Run(name, func(t *testing.T) { x.want.check(t, r) })
		if strings.Contains(r.Error, "127.0.0.1") || strings.Contains(r.Error, "192.0.2.53") {
			t.Errorf("%s: the error shows an address: %s", name, r.Error)
		}
	}
}

// TestNameServersFallSilent: what is looked up just after the last answer is as little to blame as what is looked up later. A name
// that alone is silent is told apart even so, by what others are answered while it waits.
func TestNameServersFallSilent(t *testing.T) {
	t.Parallel()
	var dead atomic.Bool
	asked := make(chan string, 10)
	c := newTestClient(t, Options{Guard: mustGuard(t), Resolver: lookup(func(ctx context.Context, host string) ([]netip.Addr, error) {
		silent := dead.Load() || host == "silent.example" // read before asked says that this lookup has begun
		asked <- host
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
	want{class: store.ClassDNSNotFound}.check(t, send("other.example"))
	silent := send("silent.example")
	want{class: store.ClassDNSError, timedOut: true}.check(t, silent)
	if silent.Timings.DNS <= 0 {
		t.Errorf("timings %+v", silent.Timings)
	}
	want{class: store.ClassDNSNotFound}.check(t, send("other.example"))
	dead.Store(true)
	local := want{class: store.ClassLocalInfra, uncharged: true, local: true}
	local.check(t, send("shop.example"))
	local.check(t, send("other.example"))
	// A lookup that began before they came back, though others are answered while it still waits; and one that began after.
	for len(asked) > 0 {
		<-asked
	}
	waited := make(chan Response, 1)
	go func() { waited <- send("shop.example") }()
	<-asked
	dead.Store(false)
	want{class: store.ClassDNSNotFound}.check(t, send("other.example"))
	local.check(t, <-waited)
	want{class: store.ClassDNSError, timedOut: true}.check(t, send("silent.example"))
}

// TestNobodyWaitsForAProbe: to find out whether name servers answer at all is no reason to outlive one's context.
func TestNobodyWaitsForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, Options{Guard: mustGuard(t), Resolver: lookup(func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true, UnwrapErr: ctx.Err()}
		})})
		r := newRequest("http://shop.example/")
		r.Timeout = 10 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		const within = 6*time.Second + probeTimeout/2 // three fifths of the timeout are for the lookup
		time.AfterFunc(within, cancel)
		got := c.Send(ctx, r)
		want{class: store.ClassInterrupted, uncharged: true}.check(t, got)
		if took := got.EndedAt.Sub(got.StartedAt); took != within {
			t.Errorf("it took %s, and was interrupted after %s", took, within)
		}
		time.Sleep(probeTimeout) // until the probe has ended too
	})
}

// TestDialErrors covers what a test cannot bring about on every machine: each error as the kernel words it.
func TestDialErrors(t *testing.T) {
	t.Parallel()
	v4 := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	v6 := &net.TCPAddr{IP: net.ParseIP("2606:4700::1"), Port: 443}
	op := func(call string, errno syscall.Errno, to net.Addr) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: os.NewSyscallError(call, errno)}
	}
	local := finding{class: store.ClassLocalInfra, uncharged: true, local: true}
	unreachable := finding{class: store.ClassUnreachable}
	for _, x := range []struct {
		err  error
		want finding
	}{
		{op("socket", syscall.EMFILE, v4), local}, {op("socket", syscall.ENFILE, v6), local},
		{op("connect", syscall.ENOBUFS, v4), local}, {op("connect", syscall.EADDRNOTAVAIL, v4), local},
		{op("connect", syscall.EADDRNOTAVAIL, v6), unreachable},
		{op("connect", syscall.EHOSTUNREACH, v4), unreachable},
		{op("connect", syscall.ENETUNREACH, v6), unreachable},
		{op("connect", syscall.EACCES, v4), unreachable}, {op("connect", syscall.EPERM, v4), unreachable},
		{op("connect", syscall.ETIMEDOUT, v4), finding{class: store.ClassConnectTimeout, timedOut: true}},
		{op("connect", syscall.ECONNREFUSED, v4), finding{class: store.ClassConnectRefused}},
		{context.DeadlineExceeded, finding{class: store.ClassConnectTimeout, timedOut: true}},
		{errors.New("something new"), unreachable},
	} {
		a := &attempt{Context: context.Background()}
		got := diagnose(context.Background(), a, fmt.Errorf("wrapped: %w", x.err), false)
		if got.text == "" || strings.Contains(got.text, "192.0.2.1") {
			t.Errorf("%v: text %q", x.err, got.text)
		}
		got.text = ""
		if got != x.want {
			t.Errorf("%v: %+v, want %+v", x.err, got, x.want)
		}
	}
}

func TestBothFamiliesAreTried(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	v4, v6 := netip.MustParseAddrPort(srv.Addr), netip.MustParseAddrPort("[::1]"+srv.Port)
	for _, addrs := range [][]netip.AddrPort{{v4}, {v6, v4}, {v4, v6}, {v6, v6, v4}} {
		c, err := race(t.Context(), &net.Dialer{}, addrs)
		if err != nil {
			t.Errorf("%v: %v", addrs, err)
			continue
		}
		if got := c.RemoteAddr().String(); got != v4.String() {
			t.Errorf("%v: connected to %s", addrs, got)
		}
		c.Close()
	}
	if _, err := race(t.Context(), &net.Dialer{}, []netip.AddrPort{v6, v6}); err == nil {
		t.Error("nobody listens there")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := race(canceled, &net.Dialer{}, []netip.AddrPort{v6, v4}); err == nil {
		t.Error("the context had ended")
	}
}
