package store

import (
	"slices"
	"testing"
)

func TestIsCredentialHeader(t *testing.T) {
	for name, want := range map[string]bool{
		"Authorization": true, "AUTHORIZATION": true, "proxy-authorization": true, "Cookie": true,
		"cOOKIE": true, "X-Auth-Token": true, "PRIVATE-TOKEN": true, "Tokens": true, "client_secret": true,
		"X-Password": true, "X-Credentials": true, "X-Api-Key": true, "Ocp-Apim-ApiKey": true,
		"API_KEY": true, "X-Api-Key-2": true,

		"": false, "Authorization-Info": false, "X-Authorization": false, "Cookie2": false, "X-Cookie": false,
		"Set-Cookie": false, "Idempotency-Key": false, "X-Key": false, "X-Api": false, "X-Api.Key": false,
		"X-Signature": false, "Content-Type": false, "X-Shop": false, "X-Passw0rd": false,
	} {
		if got := IsCredentialHeader(name); got != want {
			t.Errorf("IsCredentialHeader(%q) = %v", name, got)
		}
	}
}

// At another host a callback has no credentials, and its lane is that of the address, unless it has one of
// its own.
func TestMoveTo(t *testing.T) {
	plain, credential := Header{Name: "X-Shop", Value: "7"}, SealedHeader("X-Token", "k:c")
	of := func(lane, endpoint string) Callback {
		return Callback{URL: "https://a.example/x", Lane: lane, EndpointID: endpoint, Headers: []Header{credential, plain, credential}}
	}
	const a, b = "https://a.example:443", "https://b.example:443"
	for _, c := range []struct {
		what     string
		callback Callback
		to, lane string
		headers  int
	}{
		{"to the same host", of(a, ""), "https://A.example:443/y", a, 3},
		{"to another one", of(a, ""), "https://b.example/x", b, 1},
		{"to plain text", of(a, ""), "http://a.example/x", "http://a.example:80", 1},
		{"with a lane of its own", of("merchant-7", ""), "https://b.example/x", "merchant-7", 1},
		{"of an endpoint", of("ep_1", "1"), "https://b.example/x", "ep_1", 1},
	} {
		before := slices.Clone(c.callback.Headers)
		given := c.callback.Headers
		c.callback.MoveTo(c.to)
		if c.callback.URL != c.to || c.callback.Lane != c.lane || len(c.callback.Headers) != c.headers {
			t.Errorf("%s: %+v", c.what, c.callback)
		}
		if !slices.Equal(given, before) {
			t.Errorf("%s: the caller's headers were changed", c.what)
		}
	}
}
