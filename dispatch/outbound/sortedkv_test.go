package outbound

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// kvOf returns the options of a sorted-kv signer.
func kvOf(t *testing.T, options string) *kvOptions {
	t.Helper()
	s, err := readSigner(`{"type":"sorted-kv"` + options + `}`)
	if err != nil {
		t.Fatal(err)
	}
	return &s.kv
}

func TestWhatSortedKVSigns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ options, contentType, body, want string }{
		{"", "", "b=2&a=1&sign=x&empty=&A=0", "A=0&a=1&b=2"},
		{`,"skip_empty":false`, "", "b=2&a=&sign=x", "a=&b=2"},
		{`,"exclude":["a","sign"]`, "", "b=2&a=1&sign=x", "b=2"},
		{`,"exclude":[]`, "", "b=2&sign=x&sign_type=MD5", "b=2&sign_type=MD5"}, // where the signature goes is never signed
		{`,"exclude":["sign"],"put":{"name":"signature"}`, "", "b=2&sign=x&signature=y", "b=2"},
		{`,"alg":"rsa2"`, "", "b=2&sign=x&sign_type=RSA2", "b=2"},
		{"", "application/x-www-form-urlencoded; charset=utf-8", "subject=%E6%94%AF+%26%3D&b=a%2Bb&", "b=a+b&subject=支 &="},
		{"", "application/json", ` {"b" : 1.50, "a":"\u0061\n", "t":true, "n":null, "o":{"y":[1, 2], "x":"<&>"}, "l":[ ]} `, `a=a` + "\n" + `&b=1.50&l=[]&o={"y":[1,2],"x":"<&>"}&t=true`},
		{`,"skip_empty":false`, "application/problem+json", `{"n":null,"e":""}`, "e=&n="},
		{"", "", `{"a":1}`, "a=1"},
		{"", "text/xml", "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<xml>\n<b> x </b><a><![CDATA[<1>]]></a><!-- no --></xml>\n", "a=<1>&b= x "},
		{"", "", "<r><a>1</a></r>", "a=1"},
	} {
		f, err := readFields(c.contentType, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if got := kvOf(t, c.options).plain(f.fields); got != c.want {
			t.Errorf("%s of %s:\n got %q\nwant %q", c.options, c.body, got, c.want)
		}
	}
}

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
			r.Signer, r.Secrets = SignerSortedKV, secretsOf(secretFor(t, UseText, 0))
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
			r.Signer, r.Secrets = `{"type":"sorted-kv"`+c.options+`}`, secretsOf(secretFor(t, UseText, 0))
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
			r.Signer, r.Secrets = `{"type":"sorted-kv"`+c.options+`}`, secretsOf(secretFor(t, UseText, 0))
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

func FuzzSortedKV(f *testing.F) {
	f.Add("application/json", `{"a":1,"b":"x"}`)
	f.Add("", "a=1&b=%20")
	f.Add("text/xml", "<x><a>1</a><b/></x>")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		fields, err := readFields(contentType, []byte(body))
		if err != nil || fields.has("sign") {
			return
		}
		o := defaultKV(algHMAC)
		want := o.plain(fields.fields)
		with := fields.with([]byte(body), []kvField{{"sign", "AB+/="}})
		again, err := readFields(contentType, with)
		if err != nil || o.plain(again.fields) != want || again.value("sign") != "AB+/=" {
			t.Fatalf("%q becomes %q: %v", body, with, err)
		}
		fresh := kvOptions{nonce: "nonce_str", time: "timestamp", timeFormat: timeDateTime}
		if added := fresh.fresh(time.Now()); !fields.has(fresh.nonce) && !fields.has(fresh.time) {
			both := fields.with([]byte(body), added)
			again, err := readFields(contentType, both)
			if err != nil || o.plain(again.fields) != o.plain(append(slices.Clone(fields.fields), added...)) {
				t.Fatalf("%q becomes %q: %v", body, both, err)
			}
		}
		if _, err := url.ParseQuery(string(with)); fields.form == kvURLEncoded && err != nil {
			t.Fatal(err)
		}
	})
}
