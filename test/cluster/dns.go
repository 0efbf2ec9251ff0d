package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// StartDNS starts CoreDNS as the cluster's DNS server, with the rights of service account
// kube-system/coredns, and returns its address. It serves the cluster's zone from the API
// server, the given hosts (name to IP address), and NXDOMAIN for everything else. Service
// kube-system/kube-dns has its address and port, which is not 53, since that would need root.
// The Service has no endpoints: Kubernetes allows no loopback address there.
func (c *Cluster) StartDNS(ctx context.Context, hosts map[string]string) (string, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return "", err
	}
	if err := grantDNS(ctx, client); err != nil {
		return "", err
	}
	kubeconfig, err := c.KubeconfigFor(ctx, metav1.NamespaceSystem, "coredns")
	if err != nil {
		return "", err
	}
	zone, err := rootZone(hosts)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(c.path("hosts.zone"), []byte(zone), 0o600); err != nil {
		return "", err
	}
	for range startAttempts {
		// All of 127.0.0.0/8 is local on Linux; elsewhere only its first address is.
		address, port, listenErr := freeDNSPort(c.ServiceIP(dnsServiceIndex))
		if listenErr != nil {
			if address, port, listenErr = freeDNSPort("127.0.0.1"); listenErr != nil {
				return "", listenErr
			}
		}
		ready, portErr := FreePorts("127.0.0.1", 1)
		if portErr != nil {
			return "", portErr
		}
		if err = os.WriteFile(c.path("Corefile"), []byte(corefile(address, port, ready[0], kubeconfig, c.path("hosts.zone"))), 0o600); err != nil {
			return "", err
		}
		p, startErr := c.startComponent("coredns", "-conf", c.path("Corefile"))
		if startErr != nil {
			return "", startErr
		}
		err = c.await(ctx, "coredns", p, func() error {
			response, err := http.Get("http://127.0.0.1:" + strconv.Itoa(ready[0]) + "/ready")
			if err != nil {
				return err
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("/ready says %s", response.Status)
			}
			return nil
		})
		if err == nil {
			return net.JoinHostPort(address, strconv.Itoa(port)), c.dnsService(ctx, client, port)
		}
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return "", err
}

// dnsServiceIndex is the place of the DNS Service in the service range, by custom.
const dnsServiceIndex = 10

func corefile(address string, port, ready int, kubeconfig, zone string) string {
	return fmt.Sprintf(`.:%d {
	bind %s
	errors
	ready 127.0.0.1:%d
	kubernetes %s in-addr.arpa ip6.arpa {
		kubeconfig %s
		pods insecure
		ttl 5
	}
	file %s .
}
`, port, address, ready, ClusterDomain, kubeconfig, zone)
}

// rootZone holds the given hosts and says with authority that nothing else exists.
func rootZone(hosts map[string]string) (string, error) {
	var zone strings.Builder
	zone.WriteString(". 5 IN SOA ns.invalid. hostmaster.invalid. 1 3600 600 86400 5\n. 5 IN NS ns.invalid.\n")
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		ip, err := netip.ParseAddr(hosts[name])
		if err != nil {
			return "", fmt.Errorf("host %s: %w", name, err)
		}
		kind := "A"
		if ip.Is6() {
			kind = "AAAA"
		}
		fmt.Fprintf(&zone, "%s. 5 IN %s %s\n", strings.TrimSuffix(name, "."), kind, ip)
	}
	return zone.String(), nil
}

// freeDNSPort finds a port of the address that is free for UDP and TCP.
func freeDNSPort(address string) (string, int, error) {
	var last error
	for range 20 {
		udp, err := net.ListenPacket("udp", net.JoinHostPort(address, "0"))
		if err != nil {
			return "", 0, fmt.Errorf("find a free port on %s: %w", address, err)
		}
		port := udp.LocalAddr().(*net.UDPAddr).Port
		tcp, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		_ = udp.Close()
		if err == nil {
			_ = tcp.Close()
			return address, port, nil
		}
		last = err
	}
	return "", 0, last
}

// grantDNS makes the account and the rights that CoreDNS's kubernetes plugin documents.
func grantDNS(ctx context.Context, client kubernetes.Interface) error {
	name := metav1.ObjectMeta{Name: "system:coredns"}
	watch := []string{"list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "pods"}, Verbs: watch},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: watch},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "coredns"}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "coredns"}}
	var err error
	create := func(what string, err1 error) {
		if err == nil && err1 != nil && !apierrors.IsAlreadyExists(err1) {
			err = fmt.Errorf("create CoreDNS's %s: %w", what, err1)
		}
	}
	_, e := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	create("cluster role", e)
	_, e = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	create("cluster role binding", e)
	_, e = client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, account, metav1.CreateOptions{})
	create("service account", e)
	return err
}

func (c *Cluster) dnsService(ctx context.Context, client kubernetes.Interface, port int) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Labels: map[string]string{"k8s-app": "kube-dns"}},
		Spec: corev1.ServiceSpec{ClusterIP: c.ServiceIP(dnsServiceIndex), Ports: []corev1.ServicePort{
			{Name: "dns", Protocol: corev1.ProtocolUDP, Port: int32(port)},     //nolint:gosec // a port
			{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: int32(port)}, //nolint:gosec // a port
		}},
	}
	_, err := client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, service, metav1.CreateOptions{})
	return err
}
