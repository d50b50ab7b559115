package outbound

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

func TestDeniedPortsAreSorted(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(deniedPorts[:]) {
		t.Error("deniedPorts must be sorted for the binary search")
	}
	for port, want := range map[uint16]bool{
		0: true, 22: true, 25: true, 80: false, 443: false, 3306: true,
		5432: true, 6379: true, 8080: false, 11211: true,
	} {
		if isDeniedPort(port) != want {
			t.Errorf("port %d denied: %v", port, !want)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"https://shop.example/", "http://127。0。0。1/", "http://[::ffff:127.0.0.1]:80/", "http://0x7f.1",
	} {
		f.Add(seed)
	}
	g := mustGuard(f)
	f.Fuzz(func(t *testing.T, raw string) {
		if g.CheckURL(raw) != nil {
			return
		}
		u, err := parseURL(raw, "http", "https")
		if err != nil {
			t.Fatalf("%q passes but cannot be parsed: %v", raw, err)
		}
		host, err := normalizeHost(u.Hostname())
		if err != nil {
			t.Fatal(err)
		}
		if addr, err := netip.ParseAddr(host); err == nil && g.decide(addr, 443) == refused {
			t.Fatalf("%q passes and is %s", raw, addr)
		}
	})
}

// FuzzEgressAllow checks that a valid entry permits exactly one network or name, and that a name permits no
// network.
func FuzzEgressAllow(f *testing.F) {
	for _, line := range transcript.Inputs(f, "testdata/addresses.txt") {
		command, rest, _ := strings.Cut(line, " ")
		for entry := range strings.FieldsSeq(rest) {
			if command == "allow" {
				f.Add(entry)
			}
		}
		if command == "entry" {
			f.Add(rest)
		}
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
