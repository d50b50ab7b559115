package store

import (
	"slices"
	"testing"
)

// TestMoveTo checks that a move to another host drops the credentials, and changes a lane that has the form
// of a URL.
func TestMoveTo(t *testing.T) {
	plain, credential := Header{Name: "X-Shop", Value: "7"}, SealedHeader("X-Token", "k:c")
	of := func(lane, endpoint string) Callback {
		return Callback{URL: "https://a.example/x", Lane: lane, EndpointID: endpoint,
			Headers: []Header{credential, plain, credential}}
	}
	const a, b = "https://a.example:443", "https://b.example:443"
	for _, c := range []struct {
		name     string
		callback Callback
		to, lane string
		headers  int
	}{
		{"to the same host", of(a, ""), "https://A.example:443/y", a, 3},
		{"to another host", of(a, ""), "https://b.example/x", b, 1},
		{"to http", of(a, ""), "http://a.example/x", "http://a.example:80", 1},
		{"with a lane of the caller", of("merchant-7", ""), "https://b.example/x", "merchant-7", 1},
		{"of an endpoint", of("ep_1", "1"), "https://b.example/x", "ep_1", 1},
	} {
		before := slices.Clone(c.callback.Headers)
		given := c.callback.Headers
		c.callback.MoveTo(c.to)
		if c.callback.URL != c.to || c.callback.Lane != c.lane || len(c.callback.Headers) != c.headers {
			t.Errorf("%s: %+v", c.name, c.callback)
		}
		if !slices.Equal(given, before) {
			t.Errorf("%s: the caller's headers were changed", c.name)
		}
	}
}
