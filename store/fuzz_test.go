package store

import (
	"net/url"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
)

// FuzzRate checks that ParseRate reads the text of a rate as the same rate.
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
			t.Errorf("%q: mean time between starts is %s", s, r.Every())
		}
	})
}

// FuzzAddressLane checks that the lane of a URL is itself a URL of the same host with the same lane. So it
// has no user and no path.
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
				t.Errorf("%q has no lane, but SameHost matches it with itself", raw)
			}
			return
		}
		if !IsAddressLane(lane) {
			t.Errorf("the lane of %q is %q, which is no URL", raw, lane)
		}
		u, err := url.Parse(raw)
		if err != nil || strings.ContainsAny(u.Hostname(), "%") {
			return // a URL escapes the zone of an IPv6 address; such a URL cannot be sent to
		}
		if again, err := AddressLane(lane); err != nil || again != lane || !SameHost(raw, lane) {
			t.Errorf("the lane of %q is %q, and the lane of that is %q, %v", raw, lane, again, err)
		}
	})
}

// FuzzHost checks that an entry that CheckHost accepts names its own host, and no other host.
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
		u, err := url.Parse("https://" + address + "/x")
		valid := err == nil && u.Host == address && !strings.Contains(host, "%")
		if valid && !NamesHost([]string{host}, u.String()) {
			t.Errorf("%q does not name the host of %s", host, u)
		}
		isOther := strings.TrimSuffix(strings.Trim(lowerASCII(host), "[]"), ":443") == "other.example"
		if NamesHost([]string{host}, "https://other.example/x") && !isOther {
			t.Errorf("%q names the host other.example", host)
		}
	})
}

// FuzzID compares BareID and IDTime with the library that creates the ids.
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
			t.Errorf("%q is an id: %t, the library parses %s, %v", s, ok, want, err)
		}
		if ok && IDTime(s) != int64(want.Time()) {
			t.Errorf("the time of %q is %d, the library returns %d", s, IDTime(s), want.Time())
		}
		if bare, ok := BareID("cb_", "cb_"+s); ok && bare != s {
			t.Errorf("cb_%s without its prefix is %q", s, bare)
		}
	})
}
