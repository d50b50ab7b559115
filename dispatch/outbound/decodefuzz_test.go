package outbound

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzSecret: a secret that is taken is written as one that reads the same, has a public key that verifies,
// and an error never shows what was written.
func FuzzSecret(f *testing.F) {
	key, err := rsa.GenerateKey(rand.Reader, minRSABits)
	if err != nil {
		f.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	public := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)})
	for _, s := range []string{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsk_" + strings.Repeat("A", 43) + "=",
		"whpk_" + strings.Repeat("A", 43) + "=",
		string(pkcs1), string(public), "user:password", "a secret", "0123456789", "whsec_", "whsk_####",
		"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
	} {
		for use := range len(secretUses) {
			f.Add(byte(use), s)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		use := secretUses[int(which)%len(secretUses)]
		key, err := ParseSecretFor(use, text)
		if err != nil {
			if len(text) >= 8 && strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error shows the secret: %v", use, err)
			}
		} else {
			written := FormatSecretFor(use, key)
			if back, err := ParseSecretFor(use, written); err != nil || !bytes.Equal(back, key) {
				t.Errorf("%s: %q is written %q, which reads as %x, %v; want %x", use, text, written, back,
					err, key)
			}
			public, err := PublicOf(use, key)
			if err != nil {
				t.Errorf("%s: the public key of %q: %v", use, text, err)
			} else if public != "" {
				if _, err := ParseVerifierFor(use, public); err != nil {
					t.Errorf("%s: the public key of %q is %q: %v", use, text, public, err)
				}
			}
		}
		if verifier, err := ParseVerifierFor(use, text); err == nil {
			if _, err := PublicOf(use, verifier); err != nil {
				t.Errorf("%s: what verifies by %q has no public key: %v", use, text, err)
			}
		}
	})
}

var secretUses = []string{UseHMAC, UseEd25519, UseRSA, UseText, UseBasic}

// FuzzPointer: a pointer, written as RFC 6901 says, is the pointer that was read.
func FuzzPointer(f *testing.F) {
	for _, s := range []string{"", "/", "/a/b~1c/~0", "/~2", "/~01", "a", "//", "/0", "/a~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, why := parsePointer(text)
		if why != "" {
			return
		}
		var written strings.Builder
		for _, step := range p.steps {
			written.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
		}
		if written.String() != text {
			t.Errorf("%q has the steps %q, which are written %q", text, p.steps, &written)
		}
	})
}

// FuzzXML: elements are nested as the text says, within the bounds, for a cost in proportion to the text. A
// path that is taken finds the element that has it.
func FuzzXML(f *testing.F) {
	for _, s := range [][2]string{
		{"<xml><return_code><![CDATA[SUCCESS]]></return_code></xml>", "/xml/return_code"}, {`<a:b c="d"/>`,
			"/b"}, {"<a><b>1</b><b>2</b></a>", "/a/b"},
		{"<!DOCTYPE a><a/>", "/a"}, {"<a>&amp;&#65;<!-- --><?p?></a>", "/a"}, {"<a></b>", "/"},
		{strings.Repeat("<a>", 300), "/a/a"}, {"<a/><b/>", "/a/"},
	} {
		f.Add([]byte(s[0]), s[1])
	}
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		spent := 0
		tree, why := readXML(text, func(steps int) bool { spent += steps; return true })
		// The shortest token takes one byte, and each costs tokenSteps beside its bytes.
		if most := (tokenSteps + 1) * (2*len(text) + 2); spent > most {
			t.Errorf("%q costs %d steps, more than %d", text, spent, most)
		}
		if why != "" {
			return
		}
		for i, e := range tree.elements {
			switch {
			case i == 0 && (e.parent != -1 || e.depth != 0):
				t.Fatalf("the root of %q is %+v", text, e)
			case i > 0 && (e.parent < 0 || e.parent >= i || e.depth != tree.elements[e.parent].depth+1 ||
				tree.elements[e.parent].leaf):
				t.Fatalf("element %d of %q is %+v", i, text, e)
			case e.depth > maxXMLDepth || e.end < 0 || e.end > int64(len(text)):
				t.Fatalf("element %d of %q is %+v", i, text, e)
			}
		}
		p, why := parseXMLPath(path)
		if why != "" {
			return
		}
		want := 0
		for i := range tree.elements {
			if pathTo(tree, i) == path {
				want++
			}
		}
		if _, got := tree.find(p); got != want {
			t.Errorf("%q has %d elements at %s, %d are found", text, want, path, got)
		}
	})
}

// pathTo is the way to an element, as parseXMLPath reads it.
func pathTo(tree *xmlTree, i int) string {
	if i < 0 {
		return ""
	}
	return pathTo(tree, tree.elements[i].parent) + "/" + tree.elements[i].name
}

// FuzzCharset: a text in a known encoding becomes UTF-8; what is UTF-8 stays as it is, but for its mark.
func FuzzCharset(f *testing.F) {
	gbk, err := simplifiedchinese.GBK.NewEncoder().Bytes([]byte("成功"))
	if err != nil {
		f.Fatal(err)
	}
	for _, contentType := range []string{
		"text/plain; charset=GBK", `text/xml; charset="gb18030"`, "text/plain", "a;charset=utf-8",
		"charset=x-gbk;",
	} {
		for _, body := range []string{
			"success", "\xef\xbb\xbfok", string(gbk), "成功",
			"<?xml version='1.0' encoding='gbk'?>" + string(gbk), "\xff\xfe", "\x81",
		} {
			f.Add(contentType, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		text, ok := decodeText(contentType, body)
		if rest, marked := bytes.CutPrefix(body, []byte(byteOrderMark)); marked || isASCII(body) {
			if !ok || !bytes.Equal(text, rest) {
				t.Errorf("%q is read as %q, %t", body, text, ok)
			}
			return
		}
		declared := charsetParameter(contentType)
		if declared == "" {
			declared = declaredEncoding(body)
		}
		known := slices.Contains([]string{"gbk", "gb2312", "gb18030", "cp936", "x-gbk"},
			strings.ToLower(declared))
		if known && ok && !utf8.Valid(text) {
			t.Errorf("%q, which is %s, becomes %q", body, declared, text)
		}
		if !known && !bytes.Equal(text, body) {
			t.Errorf("%q, which is %q, becomes %q", body, declared, text)
		}
	})
}

// FuzzGzip compares the reading of a compressed answer with compress/gzip: one whole member is read up to the
// limit, everything else is a fault.
func FuzzGzip(f *testing.F) {
	packed := func(parts ...string) []byte {
		var b bytes.Buffer
		for _, part := range parts {
			w := gzip.NewWriter(&b)
			_, _ = w.Write([]byte(part)) // into memory
			_ = w.Close()
		}
		return b.Bytes()
	}
	for _, body := range [][]byte{
		packed("ok"), packed(""), packed("a", "b"), packed("ok")[:12], packed(strings.Repeat("a",
			MaxResponseBytes)),
		packed(strings.Repeat("a", MaxResponseBytes+1)), packed(strings.Repeat("a", 1<<20)), []byte("ok"),
		append(packed("ok"), "x"...),
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a := answer{}
		a.read(&http.Response{
			StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, ContentLength: -1,
			Body: io.NopCloser(bytes.NewReader(body)),
		}, nil)
		defer a.release()
		if len(a.body) > MaxResponseBytes {
			t.Fatalf("%d bytes are kept", len(a.body))
		}
		want, whole := oneMember(body)
		switch fault := a.fault(); {
		case whole && len(want) <= MaxResponseBytes && (fault != "" || !bytes.Equal(a.body, want)):
			t.Errorf("%x is read as %q, %s; want %q", body, a.body, fault, want)
		case !whole && fault == "":
			t.Errorf("%x is no single member, and is read as %q", body, a.body)
		case whole && len(want) > MaxResponseBytes && fault == "":
			t.Errorf("%d bytes are taken for a whole answer", len(want))
		}
	})
}

// oneMember unpacks a gzip member, and says whether it is valid and nothing follows it.
func oneMember(body []byte) (plain []byte, whole bool) {
	packed := bufio.NewReader(bytes.NewReader(body))
	z, err := gzip.NewReader(packed)
	if err != nil {
		return nil, false
	}
	z.Multistream(false)
	if plain, err = io.ReadAll(z); err != nil {
		return plain, false
	}
	_, err = packed.ReadByte()
	return plain, err == io.EOF
}

// FuzzHeaders: a header that may be sent arrives as it was given, alone, and is none of our own.
func FuzzHeaders(f *testing.F) {
	for _, s := range [][2]string{
		{"X-Shop", "7"}, {"webhook-id", "x"}, {"Host", "x"}, {"A", "b\r\nC: d"}, {"A:", "b"}, {"A", " b\t"},
		{"Content-Type", "text/plain"},
		{"A", "\u00e9"}, {"A", "\x80"}, {"transfer-encoding", "chunked"}, {"A", ""}, {"COOKIE", "a=b; c=d"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckHeaders([]store.Header{{Name: name, Value: value}}) != nil {
			return
		}
		var wire bytes.Buffer
		req, err := http.NewRequest("POST", "http://shop.example/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header[http.CanonicalHeaderKey(name)] = []string{value}
		if err := req.Write(&wire); err != nil {
			t.Fatalf("%q: %q cannot be sent: %v", name, value, err)
		}
		got, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			t.Fatalf("%q: %q makes a request that cannot be read: %v", name, value, err)
		}
		got.Header.Del("User-Agent")
		got.Header.Del("Content-Length")
		if arrived := got.Header.Get(name); arrived != strings.Trim(value, " \t") || len(got.Header) != 1 ||
			got.ContentLength != 4 {
			t.Errorf("%q: %q arrives as %q, all as %q", name, value, arrived, got.Header)
		}
	})
}

// FuzzEgressAllow: an entry that is taken permits what it names, and nothing of the public internet is lost
// by it.
func FuzzEgressAllow(f *testing.F) {
	for _, s := range []string{
		"10.0.0.0/8", "10.1.0.0/8", "127.0.0.1", "[::1]", "::ffff:10.0.0.1", "fe80::1%eth0", "shop.internal",
		"*", "0.0.0.0/0", "::/0", "", "a b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		g, err := NewGuard([]string{entry})
		if err != nil {
			return
		}
		if len(g.networks)+len(g.names) != 1 {
			t.Fatalf("%q allows %v and %v", entry, g.networks, g.names)
		}
		for _, network := range g.networks {
			if !network.IsValid() || network.Masked() != network || !g.allowsNetwork(network.Addr()) {
				t.Errorf("%q allows %v", entry, network)
			}
		}
		for name := range g.names {
			if !g.allowsName(name) || checkName(name) != nil {
				t.Errorf("%q allows the name %q", entry, name)
			}
		}
		if outside := netip.MustParseAddr("10.255.255.254"); len(g.names) > 0 && g.allowsNetwork(outside) {
			t.Errorf("the name %q allows %s", entry, outside)
		}
	})
}
