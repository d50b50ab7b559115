package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
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

func TestCheckURL(t *testing.T) {
	t.Parallel()
	const (
		fine    = "fine"
		invalid = "invalid"
		blocked = "blocked"
	)
	g := mustGuard(t)
	for _, c := range []struct{ url, want string }{
		{"https://shop.example/notify?token=abc", fine},
		{"http://shop.example:8080", fine},
		{"https://shop.example:443/", fine}, {"https://shop.example:8443/", fine}, {"https://shop.example:8843/", fine},
		{"HTTPS://Shop.Example./a%0d%0ab", fine},
		{"https://bücher.example/", fine},
		{"https://my_service.internal/", fine},
		{"https://8.8.8.8/", fine}, {"https://[2606:4700:4700::1111]:8443/", fine},
		{"https://shop.example/" + strings.Repeat("a", MaxURLBytes-21), fine},
		{"https://1.shop.example/", fine}, {"https://0x7f.example/", fine},

		{"http://127.1/", blocked}, {"http://2130706433/", blocked}, {"http://0x7f000001/", blocked},
		{"http://0X7F000001/", blocked}, {"http://0177.0.0.1/", blocked}, {"http://0x7f.1/", blocked}, {"http://0/", blocked},
		{"http://127.0.0.1./", blocked}, {"http://127.0.0.1:8080/", blocked}, {"http://256.256.256.256/", blocked},
		{"http://①②⑦.⓪.⓪.①/", blocked}, {"http://127。0。0。1/", blocked}, {"http://１２７.0.0.1/", blocked},
		{"http://[fe80::1%25eth0]/", blocked}, {"http://[::ffff:8.8.8.8]/", blocked},
		{"http://localhost/", blocked}, {"http://LOCALHOST/", blocked}, {"http://localhost./", blocked},
		{"http://a.localhost/", blocked}, {"http://localhost.localdomain/", blocked},
		{"http://metadata.google.internal/computeMetadata/v1/", blocked},
		{"http://shop.example:22/", blocked}, {"http://shop.example:25/", blocked}, {"http://shop.example:3306/", blocked},
		{"http://shop.example:5432/", blocked}, {"http://8.8.8.8:6379/", blocked}, {"http://8.8.8.8:11211/", blocked},

		{"", invalid}, {"shop.example", invalid}, {"//shop.example/x", invalid}, {"https:shop.example", invalid},
		{"ftp://shop.example/", invalid}, {"file:///etc/passwd", invalid}, {"gopher://shop.example/", invalid},
		{"unix:/run/x.sock", invalid}, {"http+unix://x/", invalid}, {"javascript:alert(1)", invalid}, {"https:///x", invalid},
		{"https://user:pw@shop.example/", invalid}, {"https://user@shop.example/", invalid}, {"https://@shop.example/", invalid},
		{"https://shop.example/#part", invalid}, {"https://shop.example#@evil.example/", invalid}, {"https://shop.example/#", invalid},
		{"https://shop.example:0/", invalid}, {"https://shop.example:99999/", invalid}, {"https://shop.example:/", invalid},
		{"https://shop.example:x/", invalid}, {"https://:443/", invalid},
		{"https://shop.example/a\r\nX: 1", invalid}, {"https://shop.example/\t", invalid}, {"https://shop.example/\x00", invalid},
		{"https://shop.example/a b", invalid}, {" https://shop.example/", invalid}, {"https://shop.example\r\n.evil/", invalid},
		{"https://shop_%2e.example/", invalid}, {"https://shop..example/", invalid}, {"https://-shop.example/", invalid},
		{`https://shop.example\@evil.example/`, invalid}, {"https://[::1/", invalid}, {"https://[zz::1]/", invalid},
		{"https://shop.example/" + strings.Repeat("a", MaxURLBytes), invalid},
		{"https://" + strings.Repeat("a", 64) + ".example/", invalid}, {"https://" + strings.Repeat("a.", 127) + "example/", invalid},
	} {
		err := g.CheckURL(c.url)
		got := fine
		switch {
		case errors.Is(err, ErrBlocked):
			got = blocked
		case err != nil:
			got = invalid
		}
		if got != c.want {
			t.Errorf("CheckURL(%q) = %v: %s, want %s", c.url, err, got, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "pw") || strings.ContainsAny(err.Error(), "\r\n\t\x00")) {
			t.Errorf("CheckURL(%q): the sentence repeats the input: %q", c.url, err)
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
