package store

import (
	"net/url"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
)

// FuzzRate: what a rate is printed as reads as the same rate.
func FuzzRate(f *testing.F) {
	for _, s := range []string{
		"50/s", "300/m", "10/h", "1/d", "+7/s", "100001/s", "8640000000/d", "9223372036854775807/d", "1/",
		"/s", "0/s",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			return
		}
		if back, err := ParseRate(r.String()); err != nil || back != r {
			t.Errorf("%q is %+v, printed %q, read back %+v, %v", s, r, r, back, err)
		}
		if r.Every() <= 0 || r.Every() > r.Per {
			t.Errorf("%q begins once in %s", s, r.Every())
		}
	})
}

// FuzzAddressLane: the lane of an address is the lane of itself, of the same host, and tells no user or path.
func FuzzAddressLane(f *testing.F) {
	for _, s := range []string{
		"https://Shop.example/notify?a=b", "http://u:p@shop.example:8080#x", "https://[2001:DB8::1]/",
		"https://[fe80::1%25eth0]:1/",
		"http://%E4%BB%AE.example/", "HTTPS://a:443", "https://a:", "https://\u0130.example", "ftp://a",
		"//a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		lane, err := AddressLane(raw)
		if err != nil {
			if SameHost(raw, raw) {
				t.Errorf("%q has no lane, and is at the same host as itself", raw)
			}
			return
		}
		if !IsAddressLane(lane) {
			t.Errorf("the lane of %q is %q, which has not the form of an address", raw, lane)
		}
		u, err := url.Parse(raw)
		if err != nil || strings.ContainsAny(u.Hostname(), "%") {
			return // a URL writes the zone of an IPv6 address otherwise; no such address can be sent to
		}
		if again, err := AddressLane(lane); err != nil || again != lane || !SameHost(raw, lane) {
			t.Errorf("the lane of %q is %q, and of that %q, %v", raw, lane, again, err)
		}
	})
}

// FuzzHost: a name that may stand in a list of hosts names its own host, and no other.
func FuzzHost(f *testing.F) {
	for _, s := range []string{
		"shop.example", "Shop.example:8443", "10.0.0.1", "[::1]:80", "::1", "[::1]", "*", "a:0", "a:65536",
		"a@b", "a%b", "::ffff:1.2.3.4",
		"other.example", "other.example:443", "[other.example]", "0]", "[0", "[::1]]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if CheckHost(host) != nil {
			return
		}
		address := host
		if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			address = "[" + host + "]"
		}
		if u, err := url.Parse("https://" + address + "/x"); err == nil && u.Host == address &&
			!strings.Contains(host, "%") &&
			!NamesHost([]string{host}, u.String()) {
			t.Errorf("%q does not name the host of %s", host, u)
		}
		if NamesHost([]string{host}, "https://other.example/x") &&
			strings.TrimSuffix(strings.Trim(lowerASCII(host), "[]"), ":443") != "other.example" {
			t.Errorf("%q names the host other.example", host)
		}
	})
}

// FuzzID compares the reading of ids with the library that makes them.
func FuzzID(f *testing.F) {
	for _, s := range []string{
		"01JD6QZ0000000000000000001", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"01jd6qz0000000000000000001",
		"01JD6QZ000000000000000000", "01JD6QZ000000000000000000I", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := ulid.ParseStrict(s)
		_, ok := BareID("", s)
		if ok != (err == nil && want.String() == s) {
			t.Errorf("%q is an id: %t, the library reads %s, %v", s, ok, want, err)
		}
		if ok && IDTime(s) != int64(want.Time()) {
			t.Errorf("%q was made at %d, the library says %d", s, IDTime(s), want.Time())
		}
		if bare, ok := BareID("cb_", "cb_"+s); ok && bare != s {
			t.Errorf("cb_%s without its prefix is %q", s, bare)
		}
	})
}
