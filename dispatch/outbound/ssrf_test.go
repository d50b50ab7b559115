package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file holds what must not be sent to. The subtests have the numbers of the cases of the security list.

// A dialWatch sees every address that the dialers are about to connect to, and lets none be connected to.
type dialWatch struct {
	mu    sync.Mutex
	tried []string
}

var errWatched = errors.New("the test keeps this connection from being made")

// watchDials puts a watch on a client. What the guard refuses does not reach it.
func watchDials(c *Client) *dialWatch {
	w := new(dialWatch)
	for _, d := range []*net.Dialer{&c.transport.dialer.guarded, &c.transport.dialer.named} {
		control := d.ControlContext
		d.ControlContext = func(ctx context.Context, network, address string, conn syscall.RawConn) error {
			if err := control(ctx, network, address, conn); err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tried = append(w.tried, address)
			return errWatched
		}
	}
	return w
}

// all returns what was tried so far.
func (w *dialWatch) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.tried, " ")
}

// internalHosts are hosts of URLs that are refused when they are given, and when they are dialled all the
// same, such as those of older rows. There are the first and the last address of every network, and the
// forms of IPv6 that carry an IPv4 address.
var internalHosts = []struct {
	number int
	hosts  string
}{
	{1, "127.0.0.1 127.0.0.0 127.255.255.255"},
	{2, "127.1 2130706433 0x7f000001 0X7F000001 0177.0.0.1 0x7f.1 0X7F.1 0 127.0.0.1. 256.256.256.256"},
	{3, "0.0.0.0 [::]"},
	{4, "[::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:ffff:127.0.0.1] [::ffff:10.0.0.1]"},
	{5, "[::127.0.0.1]"},
	{6, "[64:ff9b::a00:1] [64:ff9b::808:808] [64:ff9b:1::1]"},
	{7, "[2002::] [2002:a00:1::1] [2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff] " +
		"[2001:0:4136:e378:8000:63bf:3fff:fdd2]"},
	{8, "169.254.0.0 169.254.169.254 169.254.255.255 [fd00:ec2::254] 100.100.100.200 168.63.129.16 " +
		"metadata.google.internal METADATA.google.internal. metadata.goog"},
	{9, "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 " +
		"100.64.0.0 100.127.255.255 198.18.0.0 198.19.255.255 192.0.0.0 192.0.0.255 192.0.2.0 192.0.2.255 " +
		"198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 192.88.99.0 192.88.99.255 " +
		"224.0.0.0 239.255.255.255 240.0.0.0 255.255.255.254 255.255.255.255 0.255.255.255"},
	{10, "[fc00::] [fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff] [fe80::] [fe80::1] " +
		"[febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff] [fec0::] [feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff] " +
		"[ff00::] [ff02::1] [ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff] " +
		"[2001:db8::] [2001:db8:ffff:ffff:ffff:ffff:ffff:ffff] " +
		"[3fff::] [3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff] [100::] [100::ffff:ffff:ffff:ffff] " +
		"[5f00::] [5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff] " +
		"[1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff] [4000::]"},
	{11, "[fe80::1%25eth0] [fe80::1%25lo]"},
	{16, "localhost LOCALHOST localhost. a.localhost localhost.localdomain"},
	{17, "①②⑦.⓪.⓪.① 127。0。0。1 １２７.0.0.1"},
}

// TestInternalHostsAreBlocked: cases 1 to 11, 16 and 17. A listener on this machine, and a watch on the
// dialers for what cannot be listened on, see not one connection.
func TestInternalHostsAreBlocked(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, answerOK)
	guard := mustGuard(t)
	plain := newTestClient(t, Options{Guard: guard})
	watched := newTestClient(t, Options{Guard: guard, Resolver: answers("169.254.169.254", "127.0.0.1")})
	watch := watchDials(watched)
	for _, c := range internalHosts {
		for host := range strings.FieldsSeq(c.hosts) {
			t.Run(fmt.Sprintf("case %d: %s", c.number, host), func(t *testing.T) {
				if err := guard.CheckURL("http://" + host + "/"); !errors.Is(err, ErrBlocked) {
					t.Errorf("CheckURL: %v, want ErrBlocked", err)
				}
				wantBlocked(t, watched.Send(t.Context(), newRequest("http://"+host+srv.Port+"/")))
			})
		}
	}
	t.Run("case 16: a name of /etc/hosts", func(t *testing.T) {
		wantBlocked(t, plain.Send(t.Context(), newRequest("http://localhost"+srv.Port+"/")))
	})
	wantNoConnection(t, srv, watch)
}

// allowing returns a guard with exceptions, which commas separate.
func allowing(t *testing.T, list string) *Guard {
	t.Helper()
	if list == "" {
		return mustGuard(t)
	}
	return mustGuard(t, strings.Split(list, ",")...)
}

func wantBlocked(t *testing.T, r Response) {
	t.Helper()
	want{class: store.ClassBlocked}.check(t, r)
	if r.Error != ErrBlocked.Error() {
		t.Errorf("error %q says more than that it was blocked", r.Error)
	}
}

func wantNoConnection(t *testing.T, srv *rawServer, watch *dialWatch) {
	t.Helper()
	if n := srv.conns.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
	if tried := watch.all(); tried != "" {
		t.Errorf("the dialers were about to connect to %s", tried)
	}
}

// TestNamesThatLeadInside: cases 12, 14 and 15, and names that the operator allowed (case 8 beside them).
// The URL is taken, the dial is refused.
func TestNamesThatLeadInside(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, answerOK)
	for _, c := range []struct {
		number int
		// allow is what the operator allows, sets are what the name resolves to in turn.
		allow, sets string
	}{
		{12, "", "127.0.0.1|::1|::ffff:127.0.0.1|0.0.0.0 ::|64:ff9b::7f00:1|169.254.169.254"},
		{14, "", "8.8.8.8 10.0.0.1|10.0.0.1 8.8.8.8|8.8.8.8 127.0.0.1|192.0.2.1 127.0.0.1"},
		{15, "", "10.0.0.1|fd12::1"},
		{12, "shop.example", "127.0.0.1|127.9.9.9|::1|::ffff:127.0.0.1|0.0.0.0|::|::127.0.0.1"},
		{12, "shop.example", "64:ff9b::7f00:1|64:ff9b:1::1|2002:7f00:1::|2001:0:7f00:1::"},
		{12, "shop.example,10.0.0.0/8,::1", "127.0.0.1"},
		{14, "shop.example", "8.8.8.8 127.0.0.1|10.0.0.1 169.254.169.254"},
		{8, "shop.example", "169.254.169.254|169.254.170.2|fe80::a9fe:a9fe|fd00:ec2::254|fd00:ec2::23"},
		{8, "shop.example", "100.100.100.200|168.63.129.16|192.0.0.192|fd20:ce::254"},
		{8, "shop.example,127.0.0.0/8", "169.254.169.254"},
	} {
		guard := allowing(t, c.allow)
		for addrs := range strings.SplitSeq(c.sets, "|") {
			t.Run(fmt.Sprintf("case %d: %s with %q allowed", c.number, addrs, c.allow), func(t *testing.T) {
				client := newTestClient(t, Options{Guard: guard, Resolver: answers(strings.Fields(addrs)...)})
				watch := watchDials(client)
				url := "http://shop.example" + srv.Port + "/"
				if err := guard.CheckURL(url); err != nil {
					t.Errorf("CheckURL: %v", err)
				}
				wantBlocked(t, client.Send(t.Context(), newRequest(url)))
				wantNoConnection(t, srv, watch)
			})
		}
	}
}

// TestAnAllowedNameLeadsToPrivateNetworks: and with a network beside it to what is never reached by name
// alone.
func TestAnAllowedNameLeadsToPrivateNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ addrs, allow, dialled string }{
		{"10.0.0.1", "shop.example", "10.0.0.1:5432"}, {"fd12::1", "shop.example", "[fd12::1]:5432"},
		{"192.168.7.7 8.8.8.8", "shop.example", "192.168.7.7:5432 8.8.8.8:5432"},
		{"169.254.1.1", "shop.example,169.254.1.0/24", "169.254.1.1:5432"},
		{"10.0.0.1 127.0.0.1", "shop.example,127.0.0.1", "10.0.0.1:5432 127.0.0.1:5432"},
	} {
		resolver := answers(strings.Fields(c.addrs)...)
		client := newTestClient(t, Options{Guard: allowing(t, c.allow), Resolver: resolver})
		watch := watchDials(client)
		r := client.Send(t.Context(), newRequest("http://shop.example:5432/"))
		want{class: store.ClassUnreachable}.check(t, r)
		if got := watch.all(); got != c.dialled {
			t.Errorf("%s with %s allowed: dialled %q, want %q", c.addrs, c.allow, got, c.dialled)
		}
	}
}

// TestNamesOfThisMachineNeedANetwork: a name alone says nothing of where it may lead to.
func TestNamesOfThisMachineNeedANetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, allow, hint string }{
		{"http://localhost:3000/", "localhost", "by the address, not by the name: 127.0.0.1"},
		{"http://a.localhost/", "a.localhost,169.254.0.0/16", "by the address, not by the name: 127.0.0.1"},
		{"http://metadata.google.internal/", "metadata.google.internal,127.0.0.0/8", "169.254.169.254"},
		{"http://localhost:3000/", "localhost,127.0.0.1", ""},
		{"http://localhost:3000/", "::1", ""},
		{"http://metadata.google.internal/", "169.254.169.254", ""},
	} {
		err := allowing(t, c.allow).CheckURL(c.url)
		if c.hint == "" {
			if err != nil {
				t.Errorf("%s with %s allowed: %v", c.url, c.allow, err)
			}
		} else if !errors.Is(err, ErrBlocked) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s with %s allowed: %v, want %q", c.url, c.allow, err, c.hint)
		}
	}
}

func TestRebindingIsSeenAtTheDial(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	for name, allow := range map[string][]string{
		"case 13: a public name": {"127.0.0.1"}, "case 13: an allowed name": {"127.0.0.1", "shop.example"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			rebinding := lookup(func(context.Context, string) ([]netip.Addr, error) {
				if asked.Add(1) == 1 {
					return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
				}
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
			})
			before := srv.conns.Load()
			c := newTestClient(t, Options{Guard: mustGuard(t, allow...), Resolver: rebinding})
			r := newRequest("http://shop.example" + srv.Port + "/")
			okay().check(t, c.Send(t.Context(), r))
			wantBlocked(t, c.Send(t.Context(), r))
			if n := srv.conns.Load() - before; n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestErrorsAreNoPortScanner: case 28. What is blocked, refused or silent is told without an address or a
// port, in words that are the same wherever it was.
func TestErrorsAreNoPortScanner(t *testing.T) {
	t.Parallel()
	silent := serveRaw(t, func(c *net.TCPConn, _ int) { io.Copy(io.Discard, c) })
	said := map[store.Class][]string{}
	for _, c := range []struct {
		url   string
		addrs Resolver
		class store.Class
	}{
		{"http://10.0.0.1:8443/", nil, store.ClassBlocked},
		{"http://shop.example:9100/", answers("169.254.169.254"), store.ClassBlocked},
		{"http://127.0.0.1:1/", nil, store.ClassConnectRefused},
		{"http://shop.example:1/", answers("127.0.0.1"), store.ClassConnectRefused},
		{"https://" + silent.Addr + "/", nil, store.ClassConnectTimeout},
		{"https://shop.example" + silent.Port + "/", answers("127.0.0.1"), store.ClassConnectTimeout},
	} {
		r := newRequest(c.url)
		if c.class == store.ClassConnectTimeout {
			r.Timeout = time.Second
		}
		got := newTestClient(t, Options{Resolver: c.addrs}).Send(t.Context(), r)
		if got.Class != c.class || strings.ContainsAny(got.Error, "0123456789:") {
			t.Errorf("case 28: %s is %s: %q", c.url, got.Class, got.Error)
		}
		said[c.class] = append(said[c.class], got.Error)
	}
	for class, texts := range said {
		if len(texts) != 2 || texts[0] != texts[1] {
			t.Errorf("case 28: %s is told as %q", class, texts)
		}
	}
}

// TestOwnListenersAreNeverSentTo: case 27. Everything is allowed, and the listener sees not one connection.
func TestOwnListenersAreNeverSentTo(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, answerOK)
	other := serveAnswer(t, answerOK)
	own := netip.MustParseAddrPort(srv.Addr)
	const here = "127.0.0.1 [::ffff:127.0.0.1] 0.0.0.0 own.internal OWN.internal. other.example"
	everywhere := here + " 127.0.0.2 [::1] [::]" + machineHosts(t)
	for listen, hosts := range map[string]string{"127.0.0.1": here, "0.0.0.0": everywhere, "::": everywhere} {
		guard := mustGuard(t, "0.0.0.0/0", "::/0", "own.internal", "localhost")
		guard.RefuseOwn(nil, &net.TCPAddr{IP: net.ParseIP(listen), Port: int(own.Port())})
		c := newTestClient(t, Options{Guard: guard, Resolver: answers("127.0.0.1")})
		for host := range strings.FieldsSeq(hosts) {
			t.Run(fmt.Sprintf("case 27: %s where %s is listened on", host, listen), func(t *testing.T) {
				url := "http://" + host + srv.Port + "/"
				isName := strings.ContainsAny(host, "gl")
				if err := guard.CheckURL(url); errors.Is(err, ErrBlocked) == isName {
					t.Errorf("CheckURL: %v", err)
				}
				wantBlocked(t, c.Send(t.Context(), newRequest(url)))
			})
		}
		okay().check(t, c.Send(t.Context(), newRequest(other.URL)))
		okay().check(t, c.Send(t.Context(), newRequest("http://own.internal"+other.Port+"/")))
		c.CloseIdle()
	}
	if n := srv.conns.Load(); n != 0 {
		t.Errorf("%d connections arrived at the own listener", n)
	}
}

// machineHosts are the addresses of this machine as hosts of URLs, each with a space before it.
func machineHosts(t *testing.T) string {
	t.Helper()
	networks, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var hosts strings.Builder
	for _, n := range networks {
		ip, err := netip.ParsePrefix(n.String())
		switch addr := ip.Addr(); {
		case err != nil:
			t.Fatal(err)
		case addr.Is4():
			hosts.WriteString(" " + addr.String())
		default:
			hosts.WriteString(" [" + addr.String() + "]")
		}
	}
	return hosts.String()
}
