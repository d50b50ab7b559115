package sign_test

import (
	"crypto/md5"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

func textSecret(t *testing.T) []sign.Secret {
	return signtest.Secrets(signtest.Secret(t, sign.UseText, 0))
}

// isRequests says whether a request could not be signed by a fault of its own.
func isRequests(err error) bool {
	_, key := errors.AsType[*sign.KeyError](err)
	return err != nil && !key
}

func TestWhatSortedKVRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body string }{
		{"", "a=1&a=2"}, {"", "a"}, {"", "a=%zz"}, {"", "a=\xff"}, {"text/plain", "just text"},
		{"application/json", "[1]"}, {"application/json", `"x"`}, {"application/json", `{"a":1`}, {"application/json", `{"a":1,"\u0061":2}`},
		{"application/json", "a=1"}, {"application/xml", "<a><b>1</b>"}, {"application/xml", "<a>text</a>"}, {"application/xml", "<a/>"},
		{"application/xml", "<a><b><c>1</c></b></a>"}, {"application/xml", "<a><b>1</b><b>2</b></a>"}, {"application/xml", "<!DOCTYPE a><a><b>1</b></a>"},
		{"application/xml", `<?xml version="1.0" encoding="GBK"><a><b>1</b></a>`}, {"application/xml", "<a><b>1</b></a><a/>"},
	} {
		_, err := signtest.Send(t, sign.SortedKV, sign.Request{Secrets: textSecret(t), ContentType: c.contentType, Body: []byte(c.body)})
		if !isRequests(err) {
			t.Errorf("%s %q: %v", c.contentType, c.body, err)
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
		refused                           bool
	}{
		"no body for it":            {"", json, "", "", true},
		"its field is there":        {"", json, "", `{"a":1,"sign":""}`, true},
		"its query field is there":  {query, json, "sign=1", `{"a":1}`, true},
		"a query that is none":      {query, json, "flag", `{"a":1}`, true},
		"sign_type is there":        {`,"sign_type":"MD5"`, json, "", `{"sign_type":"MD5"}`, true},
		"nonce in JSON":             {`,"nonce":"n"`, json, "", `{"n":""}`, true},
		"nonce in JSON with escape": {`,"nonce":"n"`, json, "", `{"\u006e":1}`, true},
		"time in a form":            {`,"time":"t"`, "", "", "a=1&%74=", true},
		"time in XML":               {`,"nonce":"n","time":"t"`, "text/xml", "", "<x><t/></x>", true},
		"nonce in the query":        {`,"nonce":"n"` + query, "", "n=1", "", true},
		"beside a header":           {`,"nonce":"n"` + header, "", "", "n=1", true},
		"query beside a header":     {`,"time":"n"` + header, "", "n=1", "", true},
		"where nothing is added":    {`,"nonce":"n"` + query, json, "n=1", `{}`, false},
		"in another case":           {`,"nonce":"n"`, json, "", `{"N":1}`, false},
	} {
		_, err := signtest.Send(t, `{"type":"sorted-kv"`+c.options+`}`, sign.Request{
			Secrets: textSecret(t), ContentType: c.contentType, Body: []byte(c.body), URL: &url.URL{RawQuery: c.query},
		})
		if (err != nil) != c.refused || err != nil && !isRequests(err) {
			t.Errorf("%s: %v", name, err)
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
		{`,"put":{"in":"query","name":"sig"}`, "application/json", "x=%20y", `{"a":1}`, `{"a":1}`, "", "x=%20y&sig="},
		{`,"put":{"in":"query"},"sign_type":"t"`, "application/json", "", `{"a":1}`, `{"a":1}`, "", "sign_type=t&sign="},
		{`,"put":{"in":"header","name":"X-Sign"}`, "application/json", "x=1", `{"a":1}`, `{"a":1}`, "", "x=1"},
	} {
		got, err := signtest.Send(t, `{"type":"sorted-kv"`+c.options+`}`, sign.Request{
			Secrets: textSecret(t), ContentType: c.contentType, Body: []byte(c.body), URL: &url.URL{RawQuery: c.url},
		})
		body := string(got.Body)
		if err != nil || !strings.HasPrefix(body, c.before) || !strings.HasSuffix(body, c.after) || !strings.HasPrefix(got.URL.RawQuery, c.query) {
			t.Errorf("%s of %q: %v\n got %q, query %q", c.options, c.body, err, body, got.URL.RawQuery)
		}
	}
}

// TestWhatIsFreshIsSigned: the signature is over what is sent, as somebody else computes it; what is excluded is sent unsigned.
func TestWhatIsFreshIsSigned(t *testing.T) {
	t.Parallel()
	for exclude, plain := range map[string]string{"sign": "a=1&n=NONCE&t=TIME&z=2&key=hunter2-key-a", "n": "a=1&t=TIME&z=2&key=hunter2-key-a"} {
		before := time.Now()
		got, err := signtest.Send(t, `{"type":"sorted-kv","alg":"md5","nonce":"n","time":"t","exclude":["`+exclude+`"]}`, sign.Request{
			Secrets: textSecret(t), ContentType: "application/x-www-form-urlencoded", Body: []byte("z=2&a=1"),
		})
		if err != nil {
			t.Fatal(err)
		}
		f, err := url.ParseQuery(string(got.Body))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("NONCE", f.Get("n"), "TIME", f.Get("t")).Replace(plain)
		if want := fmt.Sprintf("%X", md5.Sum([]byte(text))); f.Get("sign") != want {
			t.Errorf("%s is signed %s, not %s", text, f.Get("sign"), want)
		}
		seconds, err := strconv.ParseInt(f.Get("t"), 10, 64)
		if at := time.Unix(seconds, 0); err != nil || at.Before(before.Truncate(time.Second)) || at.After(time.Now()) {
			t.Errorf("the time is %s", f.Get("t"))
		}
	}
}
