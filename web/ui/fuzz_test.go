package ui

import (
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// FuzzFilter: a filter that is formatted and parsed again is the same filter.
func FuzzFilter(f *testing.F) {
	zone, ok := zoneOf("America/New_York")
	if !ok {
		f.Fatal("no zone")
	}
	for _, s := range []string{
		"state=dead&state=scheduled&kind=notify&ref=a", "label.shop=7&label.shop=8", "label.=x&label.a=b",
		"from=2026-11-20T01:00&to=2026-11-21",
		"overdue=true&min_attempts=0&status_code=99", "overdue=false&topic=+a+&lane=&x=1",
		"from=2026-03-08T02:30&to=x", "class=x&reason=",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		r := &request{zone: zone, now: testNow}
		first := r.readFilter(values)
		again := r.readFilter(first.Values)
		if len(first.invalid) > 0 {
			if len(again.invalid) == 0 {
				t.Errorf("%q is invalid (%v), but parsed again it is valid", query, first.invalid)
			}
			return
		}
		if !reflect.DeepEqual(first, again) {
			t.Errorf("%q is the filter %+v, parsed again %+v", query, first, again)
		}
	})
}

// FuzzLocal: for any address, local returns a path of the admin pages of this host.
func FuzzLocal(f *testing.F) {
	for _, s := range []string{
		"/ui/callbacks?state=dead#top", "//evil.example/ui/", "/ui/../../x", "https://evil.example/ui/",
		"/\\evil.example", "/ui/%2e%2e/%2e%2e/x",
		"javascript:alert(1)", "/ui/\r\nSet-Cookie: a=b", "", "/ui", "/ui/..//evil.example",
		"\t//evil.example", "/ui//evil.example", "/ui/..%2f..", "/ui%2f0",
	} {
		f.Add(s)
	}
	base := &url.URL{Scheme: "https", Host: "dispatcher.example", Path: "/ui/signin"}
	f.Fuzz(func(t *testing.T, address string) {
		to := local(address, "/ui/")
		u, err := base.Parse(to)
		sameSite := err == nil && u.Host == base.Host && u.Scheme == base.Scheme && u.User == nil
		isPage := strings.HasPrefix(to, "/ui/") && !strings.ContainsAny(to, "\\\r\n\t")
		if !sameSite || !isPage || !strings.HasPrefix(u.Path, "/ui/") {
			t.Errorf("local(%q) is %q, which resolves to %v, %v", address, to, u, err)
		}
	})
}

// FuzzInput: a parsed time, formatted in UTC, parses to the same time.
func FuzzInput(f *testing.F) {
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Shanghai"} {
		for _, s := range []string{
			"2026-11-21T08:00:00", "2026-11-21 08:00", "2026-03-08T02:30", "2026-11-01T01:30", "2026-11-21",
			"2026-11-21T08:00:00.5+08:00", "x", "0000-01-01",
		} {
			f.Add(zone, s)
		}
	}
	f.Fuzz(func(t *testing.T, name, s string) {
		zone, ok := zoneOf(name)
		if !ok {
			return
		}
		r := &request{zone: zone}
		ms, ok := r.parseInput(s)
		if !ok {
			return
		}
		text := time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
		if back, ok := r.parseInput(text); !ok || back != ms {
			t.Errorf("%q in %s is %d, formatted %s, which parses as %d, %t", s, name, ms, text, back, ok)
		}
	})
}

// FuzzForm: a parsed form has only UTF-8 texts without NUL, and no more bytes than the body.
func FuzzForm(f *testing.F) {
	for _, s := range []string{
		"a=b&c=%e4%bb%ae", "a=%00", "a=%ff", "a=%zz", "=&=", "a;b=c", strings.Repeat("a=b&", 100),
	} {
		f.Add("application/x-www-form-urlencoded", s)
	}
	f.Add("multipart/form-data; boundary=x",
		"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n")
	f.Add("text/plain", "a=b")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		req := httptest.NewRequest("POST", "/ui/x", strings.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		r := &request{http: req}
		if err := r.readForm(); err != nil {
			return
		}
		size := 0
		for name, values := range r.form {
			for _, value := range values {
				size += len(name) + len(value)
				if strings.ContainsRune(value, 0) || strings.ToValidUTF8(value, "") != value {
					t.Errorf("field %q: %q is not text", name, value)
				}
			}
		}
		if size > len(body) {
			t.Errorf("the form has %d bytes, the body only %d", size, len(body))
		}
	})
}
