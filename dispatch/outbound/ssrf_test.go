package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file tests that requests never go to forbidden addresses.

var errWatched = errors.New("the test prevents this connection")

// watchDials records every address that the client is about to connect to, and prevents the connection.
// Addresses that the guard refuses are not recorded.
func watchDials(c *Client, dialed *[]string) {
	for _, d := range []*net.Dialer{&c.transport.dialer.guarded, &c.transport.dialer.named} {
		control := d.ControlContext
		d.ControlContext = func(ctx context.Context, network, address string, conn syscall.RawConn) error {
			if err := control(ctx, network, address, conn); err != nil {
				return err
			}
			*dialed = append(*dialed, address)
			return errWatched
		}
	}
}

// TestAddresses is cases 1 to 12, 14 to 20, 27 and 34 of the security list. Each URL is checked with CheckURL
// and then sent to all the same, because a stored URL may be older than the allowlist.
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
		case "own":
			guard.RefuseOwn(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(rest)))
			return ""
		case "lookup":
			resolver = answers(strings.Fields(rest)...)
			return ""
		}
		result := "fine"
		if err := guard.CheckURL(line); errors.Is(err, ErrBlocked) {
			result = "blocked: " + err.Error()
		} else if err != nil {
			result = "invalid: " + err.Error()
		}
		var dialed []string
		client := newTestClient(t, Options{Guard: guard, Resolver: resolver})
		watchDials(client, &dialed)
		r := client.Send(t.Context(), newRequest(line))
		if r.Class == store.ClassBlocked {
			wantBlocked(t, r)
		}
		return strings.TrimSpace(fmt.Sprintf("%s\n%s to %s", result, r.Class, strings.Join(dialed, " ")))
	})
}

// TestANameOfThisMachineIsBlocked is case 16, with a name from /etc/hosts. A listener sees no connection.
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
		t.Errorf("error %q, want only %q", r.Error, ErrBlocked)
	}
}

func TestRebindingIsSeenAtTheDial(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	for name, allow := range map[string][]string{
		"case 13: a public name": {"127.0.0.1"}, "case 13: an allowed name": {"127.0.0.1", "shop.example"},
	} {
		t.Run(name, func(t *testing.T) {
			var lookups atomic.Int32
			rebinding := lookup(func(context.Context, string) ([]netip.Addr, error) {
				if lookups.Add(1) == 1 {
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

// TestOwnListenersAreNeverSentTo is case 27, with a process that listens on all addresses of this machine.
// All networks are allowlisted, and the listener sees no connection.
func TestOwnListenersAreNeverSentTo(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, answerOK)
	networks, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{"0.0.0.0", "::"} {
		guard := mustGuard(t, "0.0.0.0/0", "::/0")
		own := netip.MustParseAddrPort(srv.Addr)
		guard.RefuseOwn(nil, net.TCPAddrFromAddrPort(
			netip.AddrPortFrom(netip.MustParseAddr(listen), own.Port())))
		c := newTestClient(t, Options{Guard: guard})
		for _, n := range networks {
			host, err := netip.ParsePrefix(n.String())
			if err != nil {
				t.Fatal(err)
			}
			url := "http://" + netip.AddrPortFrom(host.Addr(), own.Port()).String() + "/"
			if err := guard.CheckURL(url); !errors.Is(err, ErrBlocked) {
				t.Errorf("case 27: CheckURL of %s where %s is listened on: %v", url, listen, err)
			}
			wantBlocked(t, c.Send(t.Context(), newRequest(url)))
		}
	}
	if n := srv.conns.Load(); n != 0 {
		t.Errorf("%d connections arrived at the process's own listener", n)
	}
}
