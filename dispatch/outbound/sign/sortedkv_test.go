package sign

import (
	"bytes"
	"crypto/rsa"
	"net/url"
	"slices"
	"testing"
	"time"
)

// kvOf returns the options of a sorted-kv signer.
func kvOf(t *testing.T, options string) *sortedKV {
	t.Helper()
	s, err := readSigner(`{"type":"sorted-kv"` + options + `}`)
	if err != nil {
		t.Fatal(err)
	}
	return s.options.(*sortedKV)
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

func FuzzSortedKV(f *testing.F) {
	f.Add("application/json", `{"a":1,"b":"x"}`)
	f.Add("", "a=1&b=%20")
	f.Add("text/xml", "<x><a>1</a><b/></x>")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		fields, err := readFields(contentType, []byte(body))
		if err != nil || fields.has("sign") {
			return
		}
		o := newSortedKV(algHMAC)
		want := o.plain(fields.fields)
		with := fields.with([]byte(body), []kvField{{"sign", "AB+/="}})
		again, err := readFields(contentType, with)
		if err != nil || o.plain(again.fields) != want || again.value("sign") != "AB+/=" {
			t.Fatalf("%q becomes %q: %v", body, with, err)
		}
		fresh := sortedKV{Nonce: "nonce_str", Time: "timestamp", TimeFormat: timeDateTime}
		if added := fresh.fresh(time.Now()); !fields.has(string(fresh.Nonce)) && !fields.has(string(fresh.Time)) {
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

func TestTimesAndNoncesOfSortedKV(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 31, 16, 0, 1, 987_654_321, time.UTC).In(time.FixedZone("", -5*60*60))
	for format, want := range map[kvTime]string{
		timeUnix: "1798732801", timeUnixMS: "1798732801987", timeDateTime: "2027-01-01 00:00:01",
	} {
		if got := format.text(at); got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
	}
	const many = 2000
	letters := make(map[rune]int)
	for range many {
		for _, c := range newNonce() {
			letters[c]++
		}
	}
	const each = many * nonceLen / len(nonceLetters)
	for _, c := range nonceLetters {
		if n := letters[c]; n < each*3/4 || n > each*5/4 { // ten standard deviations
			t.Errorf("%q: %d times, about %d are expected", c, n, each)
		}
	}
}

// TestKeysAreParsedOnce: the same key is the same parsed one.
func TestKeysAreParsedOnce(t *testing.T) {
	t.Parallel()
	c := NewCache()
	var parsed [3]*rsa.PrivateKey
	made, err := NewSecret(UseRSA)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSecret(UseRSA)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range [][]byte{made, bytes.Clone(made), other} {
		if parsed[i], err = c.rsaKey(key); err != nil {
			t.Fatal(err)
		}
	}
	if parsed[0] != parsed[1] || parsed[0] == parsed[2] {
		t.Error("a key was parsed twice, or is another one")
	}
}
