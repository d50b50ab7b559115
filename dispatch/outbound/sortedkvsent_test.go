package outbound

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestWhatSortedKVRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body string }{
		{"", "a=1&a=2"}, {"", "a"}, {"", "a=%zz"}, {"", "a=\xff"}, {"text/plain", "just text"},
		{"application/json", "[1]"}, {"application/json", `"x"`}, {"application/json", `{"a":1`}, {"application/json", `{"a":1,"\u0061":2}`},
		{"application/json", "a=1"}, {"application/xml", "<a><b>1</b>"}, {"application/xml", "<a>text</a>"}, {"application/xml", "<a/>"},
		{"application/xml", "<a><b><c>1</c></b></a>"}, {"application/xml", "<a><b>1</b><b>2</b></a>"}, {"application/xml", "<!DOCTYPE a><a><b>1</b></a>"},
		{"application/xml", `<?xml version="1.0" encoding="GBK"?><a><b>1</b></a>`}, {"application/xml", "<a><b>1</b></a><a/>"},
	} {
		_, _, r := signed(t, func(r *Request) {
			r.Signer, r.Secrets = sign.SortedKV, signtest.Secrets(signtest.Secret(t, sign.UseText, 0))
			r.ContentType, r.Body = c.contentType, []byte(c.body)
		})
		if r.Class != store.ClassInvalidRequest {
			t.Errorf("%s %q: %s", c.contentType, c.body, r.Class)
		}
	}
}

// TestWhatIsAddedReplacesNothing: a field of the caller's is in the way, wherever something would be added.
func TestWhatIsAddedReplacesNothing(t *testing.T) {
	t.Parallel()
	const json, header = "application/json", `,"put":{"in":"header","name":"X-Sign"}`
	const query = `,"put":{"in":"query"}`
	for name, c := range map[string]struct {
		options, contentType, query, body string
		want                              store.Class
	}{
		"no body for it":            {"", json, "", "", store.ClassInvalidRequest},
		"its field is there":        {"", json, "", `{"a":1,"sign":""}`, store.ClassInvalidRequest},
		"its query field is there":  {query, json, "?sign=1", `{"a":1}`, store.ClassInvalidRequest},
		"a query that is none":      {query, json, "?flag", `{"a":1}`, store.ClassInvalidRequest},
		"sign_type is there":        {`,"sign_type":"MD5"`, json, "", `{"sign_type":"MD5"}`, store.ClassInvalidRequest},
		"nonce in JSON":             {`,"nonce":"n"`, json, "", `{"n":""}`, store.ClassInvalidRequest},
		"nonce in JSON with escape": {`,"nonce":"n"`, json, "", `{"\u006e":1}`, store.ClassInvalidRequest},
		"time in a form":            {`,"time":"t"`, "", "", "a=1&%74=", store.ClassInvalidRequest},
		"time in XML":               {`,"nonce":"n","time":"t"`, "text/xml", "", "<x><t/></x>", store.ClassInvalidRequest},
		"nonce in the query":        {`,"nonce":"n"` + query, "", "?n=1", "", store.ClassInvalidRequest},
		"beside a header":           {`,"nonce":"n"` + header, "", "", "n=1", store.ClassInvalidRequest},
		"query beside a header":     {`,"time":"n"` + header, "", "?n=1", "", store.ClassInvalidRequest},
		"where nothing is added":    {`,"nonce":"n"` + query, json, "?n=1", `{}`, store.ClassOK},
		"in another case":           {`,"nonce":"n"`, json, "", `{"N":1}`, store.ClassOK},
	} {
		got, _, r := signed(t, func(r *Request) {
			r.Signer, r.Secrets = `{"type":"sorted-kv"`+c.options+`}`, signtest.Secrets(signtest.Secret(t, sign.UseText, 0))
			r.ContentType, r.Body, r.URL = c.contentType, []byte(c.body), r.URL+c.query
		})
		if r.Class != c.want || (got != nil) != (c.want == store.ClassOK) {
			t.Errorf("%s: %s %s", name, r.Class, r.Error)
		}
	}
}

// TestSortedKVChangesNothingElse: where the signature goes into the body or the query, every other byte is the caller's.
func TestSortedKVChangesNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ options, contentType, url, body, before, after, query string }{
		{"", "application/json", "", ` { "a" : 1.0 , "b":"\u0061" } ` + "\n", ` { "a" : 1.0 , "b":"\u0061" ,"sign":"`, `"} ` + "\n", ""},
		{"", "application/json", "", `{ }`, `{ "sign":"`, `"}`, ""},
		{`,"sign_type":"HMAC-SHA256"`, "application/json", "", `{"a":1}`, `{"a":1,"sign_type":"HMAC-SHA256","sign":"`, `"}`, ""},
		{"", "", "", "a=%7E&b=+", "a=%7E&b=+&sign=", "", ""},
		{"", "", "", "a=1&", "a=1&sign=", "", ""},
		{`,"sign_type":"x"`, "text/xml", "", "<xml>\n <a><![CDATA[1]]></a>\n</xml >\n", "<xml>\n <a><![CDATA[1]]></a>\n<sign_type>x</sign_type><sign>", "</sign></xml >\n", ""},
		{"", "text/xml", "", "<xml></xml>", "<xml><sign>", "</sign></xml>", ""},
		{`,"put":{"in":"query","name":"sig"}`, "application/json", "?x=%20y", `{"a":1}`, `{"a":1}`, "", "x=%20y&sig="},
		{`,"put":{"in":"query"},"sign_type":"t"`, "application/json", "", `{"a":1}`, `{"a":1}`, "", "sign_type=t&sign="},
		{`,"put":{"in":"header","name":"X-Sign"}`, "application/json", "?x=1", `{"a":1}`, `{"a":1}`, "", "x=1"},
	} {
		got, body, r := signed(t, func(r *Request) {
			r.Signer, r.Secrets = `{"type":"sorted-kv"`+c.options+`}`, signtest.Secrets(signtest.Secret(t, sign.UseText, 0))
			r.ContentType, r.Body, r.URL = c.contentType, []byte(c.body), r.URL+c.url
		})
		if r.Class != store.ClassOK || !strings.HasPrefix(string(body), c.before) || !strings.HasSuffix(string(body), c.after) {
			t.Errorf("%s of %q: %s %s\n got %q", c.options, c.body, r.Class, r.Error, body)
			continue
		}
		if got.ContentLength != int64(len(body)) || !strings.HasPrefix(got.URL.RawQuery, c.query) {
			t.Errorf("%s of %q: length %d, query %q", c.options, c.body, got.ContentLength, got.URL.RawQuery)
		}
	}
}
