package store

import "testing"

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://shop.example/a", "https://SHOP.example:443/b?c=d", true},
		{"http://shop.example", "http://shop.example:80/", true},
		{"https://shop.example", "http://shop.example", false},
		{"https://shop.example", "https://shop.example:8443", false},
		{"https://shop.example", "https://shop.example.evil", false},
		{"https://shop.example", "https://shop.example@evil/", false},
		{"nowhere", "nowhere", false},
		{"https://v\u0130ctim.example", "https://victim.example", false}, // it is dialled as another name
	} {
		if got := SameHost(c.a, c.b); got != c.want {
			t.Errorf("SameHost(%q, %q) = %v", c.a, c.b, got)
		}
	}
}

func TestNamesHost(t *testing.T) {
	const url = "https://Shop.example:8443/notify"
	for entry, want := range map[string]bool{
		"shop.example": true, "SHOP.EXAMPLE": true, "shop.example:8443": true, "*": true,
		"shop.example:443": false, "example": false, "a.shop.example": false, "shop.example.": false, "": false,
	} {
		if got := NamesHost([]string{"other.example", entry}, url); got != want {
			t.Errorf("%q names the host of %s: %v", entry, url, got)
		}
	}
	for url, want := range map[string]bool{
		"https://[2001:db8::1]/": true, "https://[2001:db8::1]:8443/": true, "https://[2001:db8::2]/": false,
		"https://shop.example@[2001:db8::2]/": false, "::": false,
	} {
		for _, entry := range []string{"2001:db8::1", "[2001:db8::1]"} {
			if got := NamesHost([]string{entry}, url); got != want {
				t.Errorf("%q names the host of %s: %v", entry, url, got)
			}
		}
	}
	if NamesHost(nil, url) {
		t.Error("an empty list names a host")
	}
}

func TestCheckHost(t *testing.T) {
	for text, right := range map[string]bool{
		"shop.example": true, "shop.example:8443": true, "10.0.0.7": true, "[2001:db8::1]:443": true, "2001:db8::1": true,
		"": false, "https://shop.example": false, "shop.example/a": false, "shop.example:0": false, "shop.example:99999": false,
		"*.shop.example": false, "a b": false, "a@b": false, "商店.example": false, "a\x00": false, ":80": false,
	} {
		if err := CheckHost(text); (err == nil) != right {
			t.Errorf("CheckHost(%q) = %v", text, err)
		}
	}
}

func TestIsAddressLane(t *testing.T) {
	for lane, want := range map[string]bool{
		"https://shop.example:443": true, "HTTP://x": true, "merchant-7": false, "http:/x": false, "": false, "ep_1": false,
	} {
		if got := IsAddressLane(lane); got != want {
			t.Errorf("IsAddressLane(%q) = %v", lane, got)
		}
	}
}

func TestAddressLane(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://Shop.Example/notify?x=1": "https://shop.example:443",
		"http://shop.example":             "http://shop.example:80",
		"http://127.0.0.1:8080/a":         "http://127.0.0.1:8080",
		"https://[2606:4700::1111]/":      "https://[2606:4700::1111]:443",
	} {
		if got, err := AddressLane(in); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "shop.example", "ftp://shop.example", "http://", "/x", "http:x", "%"} {
		if got, err := AddressLane(bad); err == nil {
			t.Errorf("%q: got %q, want an error", bad, got)
		}
	}
}
