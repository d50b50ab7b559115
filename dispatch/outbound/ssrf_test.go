package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file holds what must not be sent to.

var errWatched = errors.New("the test keeps this connection from being made")

// watchDials lists every address that the dialers of a client are about to connect to, and lets none be connected to.
// What the guard refuses does not get there.
func watchDials(c *Client, dialled *[]string) {
	for _, d := range []*net.Dialer{&c.transport.dialer.guarded, &c.transport.dialer.named} {
		control := d.ControlContext
		d.ControlContext = func(ctx context.Context, network, address string, conn syscall.RawConn) error {
			if err := control(ctx, network, address, conn); err != nil {
				return err
			}
			*dialled = append(*dialled, address)
			return errWatched
		}
	}
}

// TestAddresses: cases 1 to 12 and 14 to 20, and 34. Each address is judged when it is given, and sent to all the same, as
// those of older rows are.
func TestAddresses(t *testing.T) {
	t.Parallel()
	var guard *Guard
	var resolver Resolver
	transcript.Run(t, "testdata/addresses.txt", func(line string) string {
		command, rest, _ := strings.Cut(line, " ")
		switch command {
		case "entry":
			_, err := NewGuard([]string{rest})
			return fmt.Sprint(err)
		case "allow":
			guard = mustGuard(t, strings.Fields(rest)...)
			return ""
		case "lookup":
			resolver = answers(strings.Fields(rest)...)
			return ""
		}
		judged := "fine"
		if err := guard.CheckURL(line); errors.Is(err, ErrBlocked) {
			judged = "blocked: " + err.Error()
		} else if err != nil {
			judged = "invalid: " + err.Error()
		}
		var dialled []string
		client := newTestClient(t, Options{Guard: guard, Resolver: resolver})
		watchDials(client, &dialled)
		r := client.Send(t.Context(), newRequest(line))
		if r.Class == store.ClassBlocked {
			wantBlocked(t, r)
		}
		return strings.TrimSpace(fmt.Sprintf("%s\n%s to %s", judged, r.Class, strings.Join(dialled, " ")))
	})
}

// TestANameOfThisMachineIsBlocked: case 16, by /etc/hosts. A listener sees not one connection.
func TestANameOfThisMachineIsBlocked(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, answerOK)
	plain := newTestClient(t, Options{Guard: mustGuard(t)})
	wantBlocked(t, plain.Send(t.Context(), newRequest("http://localhost"+srv.Port+"/")))
	wantBlocked(t, plain.Send(t.Context(), newRequest(srv.URL)))
	if n := srv.conns.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

func wantBlocked(t *testing.T, r Response) {
	t.Helper()
	expect(t, r, "blocked failed")
	if r.Error != ErrBlocked.Error() {
		t.Errorf("error %q says more than that it was blocked", r.Error)
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
			expect(t, c.Send(t.Context(), r), okay)
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
		expect(t, c.Send(t.Context(), newRequest(other.URL)), okay)
		expect(t, c.Send(t.Context(), newRequest("http://own.internal"+other.Port+"/")), okay)
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
