package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// TestGuardJudgesAddresses: what is beside the networks of internalHosts. Those are judged when they are
// dialled.
func TestGuardJudgesAddresses(t *testing.T) {
	t.Parallel()
	g := mustGuard(t)
	for number, addrs := range map[int]string{
		8: "168.63.129.15 168.63.129.17",
		9: "1.1.1.1 8.8.8.8 11.0.0.1 100.63.255.254 100.128.0.1 172.15.255.255 172.32.0.1 " +
			"192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255",
		10: "2606:4700:4700::1111 2a00:1450:4001:80b::200e",
	} {
		for addr := range strings.FieldsSeq(addrs) {
			t.Run(fmt.Sprintf("case %d: %s", number, addr), func(t *testing.T) {
				if got := g.judge(netip.MustParseAddr(addr), 443); got != public {
					t.Errorf("verdict %d, want public", got)
				}
			})
		}
	}
}

func TestGuardExceptions(t *testing.T) {
	t.Parallel()
	g := mustGuard(t, "10.1.0.0/16", " 192.168.7.7 ", "fd00::/8", "[::1]", "Shop.Internal", "bücher.internal.")
	for text, want := range map[string]verdict{
		"10.1.255.255": excepted, "10.2.0.0": refused, "192.168.7.7": excepted, "192.168.7.8": refused,
		"fd12::1": excepted, "fe80::1": refused, "::1": excepted, "::ffff:10.1.0.1": excepted, "127.0.0.1": refused,
	} {
		if got := g.judge(netip.MustParseAddr(text), 5432); got != want {
			t.Errorf("%s: verdict %d, want %d", text, got, want)
		}
	}
	for url, ok := range map[string]bool{
		"http://10.1.0.1:5432/": true, "http://[fd12::1]:25/": true, "http://shop.internal:6379/": true,
		"http://SHOP.INTERNAL.:6379/": true, "http://a.shop.internal/": true, "http://bücher.internal/": true,
		"http://xn--bcher-kva.internal:22/": true, "http://10.2.0.1/": false, "http://localhost/": true,
	} {
		if err := g.CheckURL(url); (err == nil) != ok {
			t.Errorf("CheckURL(%s) = %v, want ok %v", url, err, ok)
		}
	}
}

func TestNewGuardRefusesWhatItCannotMean(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{
		"", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/104", "fe80::1%eth0", "127.1", "0x7f000001", "http://shop.internal",
		"shop.internal:80", "*.internal", "a b", "-a.internal", "a..b", strings.Repeat("a", 64) + ".internal", "10.0.0.0/8,x",
	} {
		_, err := NewGuard([]string{entry})
		if err == nil {
			t.Errorf("%q was taken", entry)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line: %v", entry, err)
		}
	}
}

// TestCheckURL: what is no address to send to, and what is. The addresses that are blocked are in
// internalHosts.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	const (
		fine    = "fine"
		invalid = "invalid"
		blocked = "blocked"
	)
	long := "https://shop.example/" + strings.Repeat("a", MaxURLBytes-21)
	g := mustGuard(t)
	for _, c := range []struct {
		// number is the case of the security list; zero: it has none for this.
		number int
		want   string
		urls   []string
	}{
		{0, fine, []string{
			"https://shop.example/notify?token=abc", "http://shop.example:8080", "https://bücher.example/",
			"https://my_service.internal/", "https://8.8.8.8/", "https://[2606:4700:4700::1111]:8443/", long,
			"https://1.shop.example/", "https://0x7f.example/",
		}},
		{0, blocked, []string{"http://127.0.0.1:8080/", "http://[::ffff:8.8.8.8]/"}},
		{0, invalid, []string{
			"", "shop.example", "https:///x", "https://:443/", `https://shop.example\@evil.example/`,
			"https://[::1/", "https://[zz::1]/", "https://shop_%2e.example/", "https://shop..example/",
			"https://-shop.example/", "https://shop.example/#part", "https://shop.example#@evil.example/",
			"https://shop.example/#", long + "a", "https://" + strings.Repeat("a", 64) + ".example/",
			"https://" + strings.Repeat("a.", 127) + "example/",
		}},
		{18, invalid, []string{
			"https://user:pw@shop.example/", "https://user@shop.example/", "https://@shop.example/",
		}},
		{19, invalid, []string{
			"//shop.example/x", "https:shop.example", "ftp://shop.example/", "file:///etc/passwd",
			"gopher://shop.example/", "unix:/run/x.sock", "http+unix://x/", "javascript:alert(1)",
		}},
		{20, fine, []string{
			"https://shop.example:443/", "https://shop.example:8443/", "https://shop.example:8843/",
		}},
		{20, blocked, []string{
			"http://shop.example:22/", "http://shop.example:25/", "http://shop.example:3306/",
			"http://shop.example:5432/", "http://8.8.8.8:6379/", "http://8.8.8.8:11211/",
		}},
		{20, invalid, []string{
			"https://shop.example:0/", "https://shop.example:99999/", "https://shop.example:/",
			"https://shop.example:x/",
		}},
		{34, fine, []string{"HTTPS://Shop.Example./a%0d%0ab"}},
		{34, invalid, []string{
			"https://shop.example/a\r\nX: 1", "https://shop.example/\t", "https://shop.example/\x00",
			"https://shop.example/a b", " https://shop.example/", "https://shop.example\r\n.evil/",
		}},
	} {
		for _, url := range c.urls {
			t.Run(fmt.Sprintf("case %d: %q is %s", c.number, parse.Cut(url, 60), c.want), func(t *testing.T) {
				err := g.CheckURL(url)
				got := fine
				switch {
				case errors.Is(err, ErrBlocked):
					got = blocked
				case err != nil:
					got = invalid
				}
				if got != c.want {
					t.Errorf("%v: %s", err, got)
				}
				said := fmt.Sprint(err)
				if strings.Contains(said, "pw") || strings.ContainsAny(said, "\r\n\t\x00") {
					t.Errorf("the sentence repeats the input: %q", said)
				}
			})
		}
	}
}

func TestPortIsLeftToTheDialWhereNetworksAreAllowed(t *testing.T) {
	t.Parallel()
	if err := mustGuard(t, "10.0.0.0/8").CheckURL("http://cache.internal:6379/"); err != nil {
		t.Errorf("a name that may resolve into the allowed network: %v", err)
	}
}

func TestDeniedPortsAreSorted(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(deniedPorts[:]) {
		t.Error("the list is searched by halves and must be sorted")
	}
	for port, want := range map[uint16]bool{0: true, 22: true, 25: true, 80: false, 443: false, 3306: true, 5432: true, 6379: true, 8080: false, 11211: true} {
		if isDeniedPort(port) != want {
			t.Errorf("port %d denied: %v", port, !want)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"https://shop.example/", "http://127。0。0。1/", "http://[::ffff:127.0.0.1]:80/", "http://0x7f.1"} {
		f.Add(seed)
	}
	g := mustGuard(f)
	f.Fuzz(func(t *testing.T, raw string) {
		if g.CheckURL(raw) != nil {
			return
		}
		u, err := parseURL(raw)
		if err != nil {
			t.Fatalf("%q passes but cannot be parsed: %v", raw, err)
		}
		host, err := normalHost(u.Hostname())
		if err != nil {
			t.Fatal(err)
		}
		if addr, err := netip.ParseAddr(host); err == nil && g.judge(addr, 443) == refused {
			t.Fatalf("%q passes and is %s", raw, addr)
		}
	})
}

// FuzzEgressAllow: an entry that is taken permits what it names, and nothing of the public internet is lost
// by it.
func FuzzEgressAllow(f *testing.F) {
	for _, s := range []string{
		"10.0.0.0/8", "10.1.0.0/8", "127.0.0.1", "[::1]", "::ffff:10.0.0.1", "fe80::1%eth0", "shop.internal",
		"*", "0.0.0.0/0", "::/0", "", "a b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		g, err := NewGuard([]string{entry})
		if err != nil {
			return
		}
		if len(g.networks)+len(g.names) != 1 {
			t.Fatalf("%q allows %v and %v", entry, g.networks, g.names)
		}
		for _, network := range g.networks {
			if !network.IsValid() || network.Masked() != network || !g.allowsNetwork(network.Addr()) {
				t.Errorf("%q allows %v", entry, network)
			}
		}
		for name := range g.names {
			if !g.allowsName(name) || checkName(name) != nil {
				t.Errorf("%q allows the name %q", entry, name)
			}
		}
		if outside := netip.MustParseAddr("10.255.255.254"); len(g.names) > 0 && g.allowsNetwork(outside) {
			t.Errorf("the name %q allows %s", entry, outside)
		}
	})
}
